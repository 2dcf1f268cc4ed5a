"""The change log: what replicas poll to follow a database.

Sequence numbers are taken under the lock that serialises writers, so they follow the order of
commits and have no gaps: who has seen number n has seen everything before it.
"""

from datetime import datetime

from sqlalchemy import delete, func, insert, select
from sqlalchemy.orm import Session

from service.store.base import Change, ChangeKind
from service.store.errors import ChangesUnavailable
from service.store.models import ChangeRow, table_of

HEAD = select(func.max(ChangeRow.sequence))
APPEND = insert(table_of(ChangeRow))
CHANGE_COLUMNS = tuple(column.name for column in table_of(ChangeRow).columns)


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
    sequence = head(session) + 1
    change = Change(sequence, kind, task, version, alias, at)
    session.connection().execute(APPEND, {name: getattr(change, name) for name in CHANGE_COLUMNS})
    return sequence


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
