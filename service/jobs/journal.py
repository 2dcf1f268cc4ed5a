"""What happened to a job, one event after the other."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from service.jobs.records import Event, EventType, Level
from service.jobs.tables import EventRow
from service.store.models import told


def append(
    session: Session,
    job: str,
    at: datetime,
    message: str,
    data: Mapping[str, Any],
    *,
    level: Level = "info",
    kind: EventType = "message",
) -> None:
    """Write an event in the transaction of what it tells of.

    Numbers are taken under the lock that serialises writers, so they have no gaps.

    Args:
        session: Of a writer.
        job: Id of the job.
        at: When, in UTC.
        message: A sentence; what a database cannot keep of it is escaped.
        data: The same for programs, representable in JSON.
        level: How bad it is.
        kind: Its type.
    """
    last = session.scalar(select(func.max(EventRow.number)).where(EventRow.job == job)) or 0
    row = EventRow(
        job=job,
        number=last + 1,
        at=at,
        level=level,
        type=kind,
        message=storable(message),
        data=dict(data),
    )
    session.add(row)
    session.flush()


def since(session: Session, job: str, after: int, limit: int) -> list[Event]:
    """Return the oldest events of a job after a number, in order."""
    rows = session.scalars(
        select(EventRow)
        .where(EventRow.job == job, EventRow.number > after)
        .order_by(EventRow.number)
        .limit(limit)
    )
    return [
        Event(
            number=row.number,
            job=row.job,
            at=told(row.at),
            level=row.level,
            type=row.type,
            message=row.message,
            data=row.data if isinstance(row.data, dict) else {},
        )
        for row in rows
    ]


def epochs(session: Session, jobs: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
    """Return the reports of the finished epochs, by job, in order."""
    reports: dict[str, list[dict[str, Any]]] = {}
    rows = session.execute(
        select(EventRow.job, EventRow.data)
        .where(EventRow.job.in_(list(jobs)), EventRow.type == "metrics")
        .order_by(EventRow.job, EventRow.number)
    )
    for job, report in rows:
        if isinstance(report, dict):
            reports.setdefault(job, []).append(report)
    return reports


def storable(text: str) -> str:
    """Return a text with what no database takes as escapes: NUL and lone surrogates."""
    return text.replace("\0", "\\x00").encode(errors="backslashreplace").decode()
