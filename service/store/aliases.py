"""Aliases, and the version that a bare name means, within a transaction."""

from dataclasses import asdict
from datetime import datetime

from sqlalchemy import false, func, select
from sqlalchemy.orm import Session

from service.store import log
from service.store.base import DEFAULT_ALIAS, AliasRecord
from service.store.models import AliasRow, VersionRow


def point(session: Session, task: str, alias: str, version: int, at: datetime) -> AliasRecord:
    """Set or move an alias to a live version, and log it."""
    sequence = log.append(session, "alias_set", task, version, at, alias)
    record = AliasRecord(task, alias, version, updated_at=at, revision=sequence)
    session.merge(AliasRow(**asdict(record)))
    return record


def served(session: Session, task: str) -> int | None:
    """Return the version that a task's bare name means.

    That is the alias `prod` where it is set, else the newest version that is not held; None where
    there is none.
    """
    default = session.get(AliasRow, (task, DEFAULT_ALIAS))
    if default is not None:
        return default.version
    newest = select(func.max(VersionRow.version)).where(
        VersionRow.task == task, VersionRow.held.is_(false())
    )
    return session.scalar(newest)
