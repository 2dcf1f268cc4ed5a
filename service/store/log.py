"""The change log: what replicas poll to follow a database.

Sequence numbers are taken under the lock that serialises writers, so they follow the order of
commits and have no gaps: who has seen number n has seen everything before it.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import delete, func, insert, select
from sqlalchemy.orm import Session

from service.store.base import Change, ChangeKind
from service.store.errors import ChangesUnavailable
from service.store.models import ChangeRow, table_of

HEAD = select(func.max(ChangeRow.sequence))
# The number is taken by the statement that uses it, which is one less for each change.
APPEND = (
    insert(table_of(ChangeRow))
    .values(sequence=select(func.coalesce(func.max(ChangeRow.sequence), 0) + 1).scalar_subquery())
    .returning(ChangeRow.sequence)
)


def head(session: Session) -> int:
    """Return the newest sequence number; 0 before the first change."""
    newest: int | None = session.connection().scalar(HEAD)
    return newest or 0


def append(
    session: Session,
    kind: ChangeKind,
    task: str,
    version: int,
    at: datetime,
    alias: str | None = None,
) -> int:
    """Log a change in the transaction that makes it, and return its sequence number."""
    change = entry(kind, task, version, at, alias)
    sequence: int = session.connection().execute(APPEND, change).scalar_one()
    return sequence


def entry(
    kind: ChangeKind, task: str, version: int, at: datetime, alias: str | None = None
) -> dict[str, Any]:
    """Return what `APPEND` takes."""
    return {"kind": kind, "task": task, "version": version, "alias": alias, "at": at}


def since(session: Session, sequence: int, limit: int) -> list[Change]:
    """Return the oldest changes after a sequence number, in order.

    Raises:
        ChangesUnavailable: If the log was pruned beyond `sequence` or has not reached it.
    """
    newest = head(session)
    oldest = session.scalar(select(func.min(ChangeRow.sequence))) or 1
    if not oldest - 1 <= sequence <= newest:
        raise ChangesUnavailable(sequence, oldest=oldest, head=newest)
    rows = session.scalars(
        select(ChangeRow)
        .where(ChangeRow.sequence > sequence)
        .order_by(ChangeRow.sequence)
        .limit(limit)
    )
    return [row.record() for row in rows]


def prune(session: Session, keep: int) -> int:
    """Forget all but the newest `keep` changes and return how many went."""
    forgotten = delete(ChangeRow).where(ChangeRow.sequence <= head(session) - keep)
    return session.connection().execute(forgotten).rowcount
