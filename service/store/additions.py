"""Keeping one more version, as a step of a transaction that may do more than that.

Uploads come by the dozen a second while texts are classified on the same processor, so the
statements are made once and go by the connection: made anew and by way of the session, they take
several times as long as the database does.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update
from sqlalchemy.orm import Session

from service.store import log
from service.store.base import Source, VersionRecord
from service.store.models import ArtefactRow, EvaluationRow, TaskRow, VersionRow, table_of

PRESENT = select(VersionRow.version).where(
    VersionRow.task == bindparam("of_task"), VersionRow.digest == bindparam("of_digest")
)
COUNT = (
    update(table_of(TaskRow))
    .where(TaskRow.name == bindparam("of_task"))
    .values(last_version=TaskRow.last_version + 1)
    .returning(TaskRow.last_version)
)
ADD_TASK = insert(table_of(TaskRow))
ADD_VERSION = insert(table_of(VersionRow))
ADD_ARTEFACT = insert(table_of(ArtefactRow))
VERSION_COLUMNS = tuple(column.name for column in table_of(VersionRow).columns)


def add(
    session: Session,
    task: str,
    digest: str,
    manifest: dict[str, Any],
    artefact: bytes,
    source: Source,
    at: datetime,
    *,
    held: bool = False,
    job: str | None = None,
) -> tuple[VersionRecord, bool]:
    """Keep an artefact as the next version of its task, unless it is there already.

    Args:
        session: Of a writer. See `Store.add_version` for what else is passed and returned.
        task: Name of the task.
        digest: Checked SHA-256 of the artefact.
        manifest: As it will be read back.
        artefact: The file.
        source: Who brings it.
        at: The time, in UTC.
        held: Whether the task's bare name passes it over.
        job: Id of the training job it came of.
    """
    connection = session.connection()
    present = connection.scalar(PRESENT, {"of_task": task, "of_digest": digest})
    if present is not None:
        return session.get_one(VersionRow, (task, present)).record(), False
    record = VersionRecord(
        task=task,
        version=take_number(connection, task),
        digest=digest,
        manifest=manifest,
        size=len(artefact),
        created_at=at,
        source=source,
        held=held,
        job=job,
    )
    connection.execute(ADD_VERSION, {name: getattr(record, name) for name in VERSION_COLUMNS})
    connection.execute(ADD_ARTEFACT, {"task": task, "version": record.version, "content": artefact})
    log.append(session, "version_added", task, record.version, at)
    return record, True


def evaluate(session: Session, version: VersionRecord, report: Mapping[str, Any]) -> None:
    """Note how good a version was found to be, unless that is known."""
    if session.get(EvaluationRow, (version.task, version.version)) is None:
        session.add(EvaluationRow(task=version.task, version=version.version, report=report))


def take_number(connection: Connection, task: str) -> int:
    """Return the next version number of a task, never given out before."""
    number: int | None = connection.scalar(COUNT, {"of_task": task})
    if number is None:
        number = 1
        connection.execute(ADD_TASK, {"name": task, "last_version": number})
    return number
