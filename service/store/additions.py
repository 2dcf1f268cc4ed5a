"""Keeping one more version, as a step of a transaction that may do more than that."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from service.store import log
from service.store.base import Source, VersionRecord
from service.store.models import ArtefactRow, EvaluationRow, TaskRow, VersionRow


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
    present = session.scalar(
        select(VersionRow).where(VersionRow.task == task, VersionRow.digest == digest)
    )
    if present is not None:
        return present.record(), False
    record = VersionRecord(
        task=task,
        version=take_number(session, task),
        digest=digest,
        manifest=manifest,
        size=len(artefact),
        created_at=at,
        source=source,
        held=held,
        job=job,
    )
    columns = asdict(record)
    del columns["damaged"]
    session.execute(insert(VersionRow).values(columns))
    session.execute(insert(ArtefactRow).values(task=task, version=record.version, content=artefact))
    log.append(session, "version_added", task, record.version, at)
    return record, True


def evaluate(session: Session, version: VersionRecord, report: Mapping[str, Any]) -> None:
    """Note how good a version was found to be, unless that is known."""
    if session.get(EvaluationRow, (version.task, version.version)) is None:
        session.add(EvaluationRow(task=version.task, version=version.version, report=report))


def take_number(session: Session, task: str) -> int:
    """Return the next version number of a task, never given out before."""
    counter = session.get(TaskRow, task)
    if counter is None:
        session.execute(insert(TaskRow).values(name=task, last_version=1))
        return 1
    counter.last_version += 1
    return counter.last_version
