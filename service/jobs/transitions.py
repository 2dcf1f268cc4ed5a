"""What becomes of a job's row, and the event that says so; callers have checked that it may."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from service.jobs import journal
from service.jobs.records import JobError, Level
from service.jobs.sentences import goes_on, reached
from service.jobs.tables import CheckpointRow, JobRow

CRASH_LIMIT = 3
"""So many workers may be lost with a job until it is to blame."""


def tell(
    session: Session,
    row: JobRow,
    at: datetime,
    message: str,
    data: Mapping[str, Any] | None = None,
    level: Level = "info",
) -> None:
    """Write an event that says where the job is now, and what else `data` does."""
    journal.append(
        session, row.id, at, message, {"status": row.status, **(data or {})}, level=level
    )


def line_up(session: Session, row: JobRow) -> None:
    """Put a job at the end of the queue."""
    last = session.scalar(select(func.max(JobRow.turn))) or 0
    row.turn = last + 1
    row.status = "queued"


def give_back(row: JobRow) -> None:
    """Put a running job back into the queue, where it was, as a new run."""
    row.status = "queued"
    row.worker = row.token = None
    row.run += 1


def end(row: JobRow, status: Literal["succeeded", "failed", "cancelled"], at: datetime) -> None:
    """End a job."""
    row.status = status
    row.finished_at = at
    row.worker = row.token = None


def fail(session: Session, row: JobRow, at: datetime, error: JobError) -> None:
    """End a job that cannot be done."""
    end(row, "failed", at)
    row.error = asdict(error)
    tell(session, row, at, f"The job failed: {error.message}", {"error": row.error}, "error")


def crash(session: Session, row: JobRow, at: datetime, epoch: int) -> bool:
    """Count a worker that was lost with a job, and fail the job if it was one too many.

    Args:
        session: Of a writer.
        row: The job.
        at: The time, in UTC.
        epoch: Its last finished one.

    Returns:
        Whether the job goes on.
    """
    row.crashes += 1
    if row.crashes < CRASH_LIMIT:
        return True
    error = JobError(
        "worker_crashed",
        f"{row.crashes} workers died while they trained it, the last one {reached(epoch)}, most "
        "likely for want of memory; submit it again with a lower batch_size or max_length, or "
        "resume it where there is more memory",
        "batch_size",
    )
    fail(session, row, at, error)
    return False


def lose(session: Session, row: JobRow, at: datetime) -> None:
    """Take a running job from a worker that was lost."""
    worker, epoch = row.worker, last_epoch(session, row.id)
    if crash(session, row, at, epoch):
        give_back(row)
        tell(
            session,
            row,
            at,
            f"{worker} was lost {reached(epoch)}, {tally(row)}; the job is queued again and "
            f"{goes_on(epoch)}.",
            {"run": row.run, "crashes": row.crashes},
            "warning",
        )


def last_epoch(session: Session, job: str) -> int:
    """Return the last finished epoch of a job; 0 before the first."""
    return session.scalar(select(CheckpointRow.epoch).where(CheckpointRow.job == job)) or 0


def tally(row: JobRow) -> str:
    """Say how many workers a job has cost."""
    return f"loss {row.crashes} of the {CRASH_LIMIT} that end it"
