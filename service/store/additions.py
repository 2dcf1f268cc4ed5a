"""Keeping one more version, as a step of a transaction that may do more than that.

Uploads come by the dozen a second while texts are classified on the same processor, so the
statements are few and made once; a store may have its driver run them, see `prepared`.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

from sqlalchemy import bindparam, insert, select, update
from sqlalchemy.orm import Session

from service.store import log
from service.store.base import Source, VersionRecord
from service.store.compiled_statement import Statement
from service.store.models import ArtefactRow, EvaluationRow, TaskRow, VersionRow, table_of

PRESENT = select(VersionRow.version).where(
    VersionRow.task == bindparam("of_task"), VersionRow.digest == bindparam("of_digest")
)
# Counts on where the task does not have these bytes: for most uploads, all that has to be asked.
COUNT = (
    update(table_of(TaskRow))
    .where(TaskRow.name == bindparam("of_task"), ~PRESENT.exists())
    .values(last_version=TaskRow.last_version + 1)
    .returning(TaskRow.last_version)
)
ADD_TASK = insert(table_of(TaskRow))
ADD_VERSION = insert(table_of(VersionRow))
ADD_ARTEFACT = insert(table_of(ArtefactRow))
VERSION_COLUMNS = tuple(column.name for column in table_of(VersionRow).columns)


class Run(Protocol):
    """Runs a statement in a transaction that excludes other writers."""

    def __call__(self, statement: Statement, values: Mapping[str, Any], /) -> Any:
        """Return the first value of the first row, or None where there is none."""
        ...


def keep(
    run: Run,
    task: str,
    digest: str,
    manifest: dict[str, Any],
    artefact: bytes,
    source: Source,
    at: datetime,
    *,
    held: bool = False,
    job: str | None = None,
) -> VersionRecord | int:
    """Keep an artefact as the next version of its task, unless it is there already.

    Args:
        run: Runs the statements. See `Store.add_version` for what else is passed.
        task: Name of the task.
        digest: Checked SHA-256 of the artefact.
        manifest: As it will be read back.
        artefact: The file.
        source: Who brings it.
        at: The time, in UTC.
        held: Whether the task's bare name passes it over.
        job: Id of the training job it came of.

    Returns:
        The version; or the number of the one that has these bytes, and then nothing was changed.
    """
    number: int | None = run(COUNT, {"of_task": task, "of_digest": digest})
    if number is None:
        present: int | None = run(PRESENT, {"of_task": task, "of_digest": digest})
        if present is not None:
            return present
        number = 1
        run(ADD_TASK, {"name": task, "last_version": number})
    record = VersionRecord(
        task=task,
        version=number,
        digest=digest,
        manifest=manifest,
        size=len(artefact),
        created_at=at,
        source=source,
        held=held,
        job=job,
    )
    run(ADD_VERSION, {name: getattr(record, name) for name in VERSION_COLUMNS})
    run(ADD_ARTEFACT, {"task": task, "version": number, "content": artefact})
    run(log.APPEND, log.entry("version_added", task, number, at))
    return record


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
    """:func:`keep` in a session's transaction; returns what `Store.add_version` does."""
    connection = session.connection()

    def run(statement: Statement, values: Mapping[str, Any], /) -> Any:
        result = connection.execute(statement, values)
        return result.scalar() if result.returns_rows else None

    kept = keep(run, task, digest, manifest, artefact, source, at, held=held, job=job)
    if isinstance(kept, VersionRecord):
        return kept, True
    return session.get_one(VersionRow, (task, kept)).record(), False


def evaluate(session: Session, version: VersionRecord, report: Mapping[str, Any]) -> None:
    """Note how good a version was found to be, unless that is known."""
    if session.get(EvaluationRow, (version.task, version.version)) is None:
        session.add(EvaluationRow(task=version.task, version=version.version, report=report))
