"""What clients do to jobs, in SQL."""

import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import get_args

from sqlalchemy import Select, delete, func, select
from sqlalchemy.orm import Session

from service.jobs import journal
from service.jobs.faults import (
    idempotency_in_progress,
    idempotency_key_reused,
    job_ended,
    job_not_ended,
    job_not_resumable,
    job_not_validating,
    job_without_rows,
)
from service.jobs.lookup import ID, job_row, record, records, stored, with_position
from service.jobs.records import (
    ENDED,
    DataFile,
    Event,
    Idempotency,
    Job,
    Split,
    Status,
)
from service.jobs.sentences import goes_on
from service.jobs.spec import JobSpec
from service.jobs.tables import FileRow, JobRow
from service.jobs.transitions import end, last_epoch, line_up, tell
from service.store.errors import InvalidValue
from service.store.sql import SqlStore
from service.store.values import at_least_one

MOST_EVENTS = 2**31 - 1
"""Beyond any event's number, and the largest that every database takes."""


class SqlClients:
    """The clients' part of `Ledger`.

    Attributes:
        store: whose database the jobs are in.
    """

    store: SqlStore

    def open(self, spec: JobSpec, idempotency: Idempotency | None = None) -> tuple[Job, bool]:
        """See `Ledger.open`."""
        with self.store.writing() as session:
            if idempotency is not None:
                earlier = submitted(session, idempotency)
                if earlier is not None:
                    return record(session, earlier), False
            at = self.store.now()
            row = JobRow(
                id=f"ftjob-{secrets.token_hex(12)}",
                sequence=(session.scalar(select(func.max(JobRow.sequence))) or 0) + 1,
                task=spec.task,
                spec=spec.model_dump(mode="json"),
                status="validating_files",
                created_at=at,
                run=1,
                crashes=0,
                warnings=[],
                idempotency_key=None if idempotency is None else idempotency.key,
                idempotency_digest=None if idempotency is None else idempotency.digest,
            )
            session.add(row)
            session.flush()
            tell(session, row, at, "The job was submitted; its rows are being checked.")
            return record(session, row), True

    def accept(
        self, job: str, files: Mapping[Split, DataFile], warnings: Sequence[str] = ()
    ) -> Job:
        """See `Ledger.accept`."""
        if "train" not in files:
            raise InvalidValue("files: there are no training rows; pass those of the split train")
        with self.store.writing() as session:
            row = job_row(session, job)
            if row.status != "validating_files":
                raise job_not_validating(job, row.status)
            for split, file in files.items():
                session.add(
                    FileRow(job=job, split=split, facts=stored(file.facts), content=file.content)
                )
            at = self.store.now()
            row.warnings = list(warnings)
            for warning in warnings:
                tell(session, row, at, warning, level="warning")
            line_up(session, row)
            accepted = record(session, row)
            rows = {split: file.facts.rows for split, file in files.items()}
            counted = ", ".join(f"{count} {split}" for split, count in rows.items())
            tell(
                session,
                row,
                at,
                f"The rows were accepted ({counted}); the job is number {accepted.position} in the "
                "queue.",
                {"rows": rows, "position": accepted.position},
            )
            return accepted

    def discard(self, job: str) -> None:
        """See `Ledger.discard`."""
        if not ID.fullmatch(job):
            return
        unchecked = delete(JobRow).where(JobRow.id == job, JobRow.status == "validating_files")
        with self.store.writing() as session:
            session.execute(unchecked)

    def discard_stale(self, before: datetime) -> int:
        """See `Ledger.discard_stale`."""
        stale = delete(JobRow).where(
            JobRow.status == "validating_files", JobRow.created_at < before
        )
        with self.store.writing() as session:
            return session.connection().execute(stale).rowcount

    def get(self, job: str) -> Job:
        """See `Ledger.get`."""
        with self.store.reading() as session:
            return record(session, job_row(session, job))

    def page(
        self,
        after: str | None = None,
        limit: int = 20,
        status: Status | None = None,
        task: str | None = None,
    ) -> tuple[list[Job], bool]:
        """See `Ledger.page`."""
        at_least_one("limit", limit)
        query: Select[JobRow, int | None] = with_position()
        if status is not None:
            query = query.where(JobRow.status == status)
        if task is not None:
            query = query.where(JobRow.task == task)
        with self.store.reading() as session:
            if after is not None:
                query = query.where(JobRow.sequence < job_row(session, after, "after").sequence)
            jobs = records(session, query.order_by(JobRow.sequence.desc()).limit(limit + 1))
        return jobs[:limit], len(jobs) > limit

    def events(self, job: str, after: int = 0, limit: int = 100) -> tuple[list[Event], bool]:
        """See `Ledger.events`."""
        at_least_one("limit", limit)
        with self.store.reading() as session:
            job_row(session, job)
            events = journal.since(session, job, max(0, min(after, MOST_EVENTS)), limit + 1)
        return events[:limit], len(events) > limit

    def cancel(self, job: str) -> Job:
        """See `Ledger.cancel`."""
        with self.store.writing() as session:
            row = job_row(session, job)
            if row.status in ("succeeded", "failed"):
                raise job_ended(job, row.status)
            if row.status != "cancelled":
                at = self.store.now()
                aside = f"; {row.worker} stops within seconds" if row.worker else ""
                end(row, "cancelled", at)
                tell(session, row, at, f"The job was cancelled{aside}.")
            return record(session, row)

    def resume(self, job: str) -> Job:
        """See `Ledger.resume`."""
        with self.store.writing() as session:
            row = job_row(session, job)
            if row.status not in ("failed", "cancelled"):
                raise job_not_resumable(job, row.status)
            if row.turn is None:
                raise job_without_rows(job)
            line_up(session, row)
            row.run += 1
            row.crashes = 0
            row.error = row.finished_at = None
            tell(
                session,
                row,
                self.store.now(),
                f"The job was resumed; it is queued and {goes_on(last_epoch(session, row.id))}.",
                {"run": row.run},
            )
            return record(session, row)

    def delete(self, job: str) -> None:
        """See `Ledger.delete`."""
        with self.store.writing() as session:
            row = job_row(session, job)
            if row.status not in ENDED:
                raise job_not_ended(job, row.status)
            session.execute(delete(JobRow).where(JobRow.id == job))

    def counts(self) -> Mapping[Status, int]:
        """See `Ledger.counts`."""
        counts: dict[Status, int] = dict.fromkeys(get_args(Status), 0)
        with self.store.reading() as session:
            counting = select(JobRow.status, func.count()).group_by(JobRow.status)
            for status, count in session.execute(counting):
                counts[status] = count
        return counts


def submitted(session: Session, idempotency: Idempotency) -> JobRow | None:
    """Return the job that came of an earlier submission under this key, if there was one.

    Raises:
        Conflict: `idempotency_in_progress`.
        Unprocessable: `idempotency_key_reused`.
    """
    row = session.scalar(select(JobRow).where(JobRow.idempotency_key == idempotency.key))
    if row is None:
        return None
    if row.idempotency_digest != idempotency.digest:
        raise idempotency_key_reused()
    if row.status == "validating_files":
        raise idempotency_in_progress()
    return row
