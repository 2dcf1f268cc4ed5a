"""Jobs by id, as records, or the error that says what is wrong with the id."""

import re
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar, get_args

from pydantic import ValidationError
from sqlalchemy import ColumnElement, Select, case, func, select
from sqlalchemy.orm import Session, aliased

from service.jobs import journal
from service.jobs.faults import job_not_found
from service.jobs.ledger import ClaimVoid
from service.jobs.records import Claim, DataFacts, Job, JobError, JobResult, Progress, Split
from service.jobs.spec import JobSpec
from service.jobs.tables import FileRow, JobRow
from service.store.models import told
from service.store.values import json_object

ID = re.compile("ftjob-[0-9a-f]{24}")

LOST_OPTIONS = "The database no longer has this job's options; those shown are made up."

SPLITS = get_args(Split)
"""In the order in which they are used."""

T = TypeVar("T")


def job_row(session: Session, job: str, field: str | None = None) -> JobRow:
    """Return a job.

    Args:
        session: Of a reader or writer.
        job: Its id, or anything else.
        field: The parameter that the id was given in, if it has a name.

    Raises:
        NotFound: `job_not_found`.
    """
    # Anything else may be beyond what the database takes.
    row = session.get(JobRow, job) if ID.fullmatch(job) else None
    if row is None:
        raise job_not_found(job, field)
    return row


def claimed(session: Session, claim: Claim) -> JobRow:
    """Return the job of a claim that holds.

    Raises:
        ClaimVoid: If it does not.
    """
    row = session.get(JobRow, claim.job) if ID.fullmatch(claim.job) else None
    if row is None or row.status != "running" or (row.run, row.token) != (claim.run, claim.token):
        raise ClaimVoid(f"run {claim.run} of {claim.job} is not this worker's any more; drop it")
    return row


def record(session: Session, row: JobRow) -> Job:
    """Return a job as callers see it, with what the transaction has done to it so far."""
    session.flush()
    (job,) = records(session, with_position().where(JobRow.id == row.id))
    return job


def with_position() -> Select[JobRow, int | None]:
    """A query for jobs and their positions in the queue, 1 for the next."""
    other = aliased(JobRow)
    ahead = (
        select(func.count())
        .where(other.status == "queued", other.turn <= JobRow.turn)
        .scalar_subquery()
    )
    position: ColumnElement[int | None] = case((JobRow.status == "queued", ahead), else_=None)
    return select(JobRow, position)


def records(session: Session, query: Select[JobRow, int | None]) -> list[Job]:
    """Return the jobs of a query as callers see them, reading no rows and no checkpoint."""
    found = session.execute(query).all()
    ids = [row.id for row, _ in found]
    files = facts(session, ids)
    reports = journal.epochs(session, ids)
    return [
        assembled(row, position, files.get(row.id, {}), reports.get(row.id, ()))
        for row, position in found
    ]


def assembled(
    row: JobRow,
    position: int | None,
    files: dict[Split, DataFacts],
    reports: Sequence[dict[str, Any]],
) -> Job:
    """Return a row as callers see it, without what of it cannot be read."""
    spec = options(row)
    warnings = tuple(row.warnings) if isinstance(row.warnings, list) else ()
    return Job(
        id=row.id,
        spec=JobSpec.model_construct(task=row.task) if spec is None else spec,
        status=row.status,
        created_at=told(row.created_at),
        started_at=row.started_at,
        finished_at=row.finished_at,
        run=row.run,
        crashes=row.crashes,
        worker=row.worker,
        position=position,
        files=files,
        warnings=(*warnings, LOST_OPTIONS) if spec is None else warnings,
        progress=restored(Progress, row.progress),
        epochs=tuple(reports),
        error=restored(JobError, row.error),
        result=restored(JobResult, row.result),
    )


def options(row: JobRow) -> JobSpec | None:
    """Return a job's options, or None where they cannot be read."""
    try:
        return JobSpec.model_validate(row.spec)
    except ValidationError:
        return None


def facts(session: Session, jobs: Sequence[str]) -> dict[str, dict[Split, DataFacts]]:
    """Return what was found in the splits, by job."""
    found: dict[str, dict[Split, DataFacts]] = {}
    rows = session.execute(
        select(FileRow.job, FileRow.split, FileRow.facts).where(FileRow.job.in_(jobs))
    )
    for job, split, value in sorted(rows, key=lambda row: SPLITS.index(row.split)):
        fact = restored(DataFacts, value)
        if fact is not None:
            problems = tuple((line, reason) for line, reason in fact.problems)
            found.setdefault(job, {})[split] = replace(fact, problems=problems)
    return found


def stored(fact: DataFacts) -> dict[str, Any]:
    """Return what was found in a split as the database keeps it."""
    # Not asdict, which takes a Counter apart.
    values = {field.name: getattr(fact, field.name) for field in fields(fact)}
    return json_object({**values, "classes": dict(fact.classes)}, "facts")


def restored(kind: type[T], value: Any) -> T | None:
    """Return a flat record that was stored as an object, or None where it is none of its kind."""
    try:
        return kind(**value)
    except TypeError:
        return None
