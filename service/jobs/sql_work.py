"""What a worker does to the job it has claimed, in SQL."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

import structlog
from pydantic import ValidationError
from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from capsules.training.events import EpochReport
from service.jobs import journal
from service.jobs.ledger import ClaimVoid, DefaultMoved
from service.jobs.lookup import ID, claimed, options, record
from service.jobs.records import (
    Activation,
    Claim,
    Job,
    JobError,
    JobResult,
    Level,
    NewVersion,
    Progress,
    Split,
)
from service.jobs.sentences import epoch_over, goes_on, outcome, reached
from service.jobs.slots import holder
from service.jobs.tables import CheckpointRow, FileRow, JobRow
from service.jobs.transitions import (
    crash,
    end,
    fail,
    last_epoch,
    tally,
    tell,
)
from service.store.additions import add, evaluate
from service.store.aliases import point, served
from service.store.base import DEFAULT_ALIAS, VersionRecord
from service.store.errors import InvalidValue
from service.store.sql import SqlStore
from service.store.values import check_digest, json_object

logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)


class SqlWork:
    """The workers' part of `Ledger` that is about jobs.

    Attributes:
        store: whose database the jobs are in.
    """

    store: SqlStore

    def queued(self) -> list[tuple[str, int]]:
        """See `Ledger.queued`."""
        queue = select(JobRow.id, JobRow.run).where(JobRow.status == "queued").order_by(JobRow.turn)
        with self.store.reading() as session:
            return [(job, run) for job, run in session.execute(queue)]

    def start(self, claim: Claim, worker: str) -> Job:
        """See `Ledger.start`."""
        with self.store.writing() as session:
            row = startable(session, claim, worker)
            at = self.store.now()
            if row.token == claim.token or takes_up(session, row, claim, worker, at):
                return record(session, row)
        # The transaction has ended, as the job's failure must be kept.
        raise ClaimVoid(f"{claim.job} failed when {worker} took it up")

    def data(self, job: str, split: Split) -> bytes | None:
        """See `Ledger.data`."""
        return self.content(
            job, select(FileRow.content).where(FileRow.job == job, FileRow.split == split)
        )

    def checkpoint(self, job: str) -> bytes | None:
        """See `Ledger.checkpoint`."""
        return self.content(job, select(CheckpointRow.content).where(CheckpointRow.job == job))

    def content(self, job: str, query: Select[bytes]) -> bytes | None:
        """Return the bytes that a query finds for a job, or None."""
        if not ID.fullmatch(job):
            return None
        with self.store.reading() as session:
            return session.scalar(query)

    def progress(self, claim: Claim, progress: Progress) -> None:
        """See `Ledger.progress`."""
        parsed = json_object(asdict(progress), "progress")
        with self.store.writing() as session:
            claimed(session, claim).progress = parsed

    def say(
        self,
        claim: Claim,
        message: str,
        *,
        level: Level = "info",
        data: Mapping[str, Any] | None = None,
    ) -> None:
        """See `Ledger.say`."""
        parsed = json_object(data or {}, "data")
        with self.store.writing() as session:
            row = claimed(session, claim)
            journal.append(session, row.id, self.store.now(), message, parsed, level=level)

    def finish_epoch(self, claim: Claim, report: Mapping[str, Any], checkpoint: bytes) -> None:
        """See `Ledger.finish_epoch`."""
        parsed = json_object(report, "report")
        try:
            finished = EpochReport.model_validate(parsed)
        except ValidationError as error:
            raise InvalidValue(f"report: {error}; pass that of an epoch") from error
        with self.store.writing() as session:
            row = claimed(session, claim)
            if finished.epoch <= last_epoch(session, row.id):
                return
            session.merge(CheckpointRow(job=row.id, epoch=finished.epoch, content=checkpoint))
            at = self.store.now()
            journal.append(session, row.id, at, epoch_over(finished), parsed, kind="metrics")

    def served(self, task: str) -> int | None:
        """See `Ledger.served`."""
        with self.store.reading() as session:
            return served(session, task)

    def succeed(
        self,
        claim: Claim,
        version: NewVersion,
        activation: Activation,
        metrics: Mapping[str, float],
    ) -> VersionRecord:
        """See `Ledger.succeed`."""
        check_digest(version.digest, version.content)
        manifest = json_object(version.manifest)
        evaluation = json_object(version.evaluation, "evaluation")
        measured = json_object(metrics, "metrics")
        with self.store.writing() as session:
            row = claimed(session, claim)
            if version.task != row.task:
                raise InvalidValue(
                    f"version: it is of task {version.task!r} and the job is of {row.task!r}; pass "
                    "the job's own"
                )
            present = served(session, row.task)
            if present != activation.expected:
                raise DefaultMoved(
                    f"{row.task} serves version {present} and not {activation.expected}; compare "
                    "with that"
                )
            at = self.store.now()
            registered, created = add(
                session,
                version.task,
                version.digest,
                manifest,
                version.content,
                "training",
                at,
                held=not activation.activate,
                job=row.id,
            )
            evaluate(session, registered, evaluation)
            if activation.activate:
                serve(session, registered, at)
            activated = served(session, row.task) == registered.version
            result = JobResult(
                task=registered.task,
                version=registered.version,
                digest=registered.digest,
                activated=activated,
                reason=activation.reason,
                metrics=measured,
            )
            end(row, "succeeded", at)
            row.result = asdict(result)
            tell(session, row, at, outcome(result), row.result)
        logger.info(
            "audit",
            action="version_registered",
            job=claim.job,
            task=registered.task,
            version=registered.version,
            digest=registered.digest,
            activated=activated,
            created=created,
        )
        return registered

    def fail(self, claim: Claim, error: JobError) -> None:
        """See `Ledger.fail`."""
        with self.store.writing() as session:
            fail(session, claimed(session, claim), self.store.now(), error)


def startable(session: Session, claim: Claim, worker: str) -> JobRow:
    """Return the job of a claim that may be taken, or that holds already.

    Raises:
        ClaimVoid: If it may not.
    """
    slot = holder(session, claim.token)
    row = session.get(JobRow, claim.job) if ID.fullmatch(claim.job) else None
    if slot is None or slot.name != worker:
        raise ClaimVoid(f"{worker} is not this process's slot; take one before starting a job")
    if row is not None and row.run == claim.run:
        if row.status == "queued":
            return row
        # Of this process, which has said so before, or of an earlier one in its slot.
        if row.status == "running" and row.worker == worker:
            return row
    raise ClaimVoid(f"run {claim.run} of {claim.job} is not to be done any more; drop it")


def takes_up(session: Session, row: JobRow, claim: Claim, worker: str, at: datetime) -> bool:
    """Give a job to a process that does not have it yet, unless it cannot be done.

    Returns:
        Whether it has it now; else the job has failed.
    """
    if options(row) is None:
        remedy = "the database no longer has its options; submit it again"
        fail(session, row, at, JobError("job_damaged", remedy))
        return False
    again = row.status == "running"
    epoch = last_epoch(session, row.id)
    if again and not crash(session, row, at, epoch):
        return False
    row.status = "running"
    row.token, row.worker = claim.token, worker
    row.started_at = row.started_at or at
    if again:
        lost = f"{worker} was lost {reached(epoch)}, {tally(row)}, and started again"
        message = f"{lost}; the job {goes_on(epoch)}."
    else:
        message = f"{worker} took the job up; it {goes_on(epoch)}."
    data = {"worker": worker, "run": row.run, "crashes": row.crashes}
    tell(session, row, at, message, data, "warning" if again else "info")
    return True


def serve(session: Session, version: VersionRecord, at: datetime) -> None:
    """Have a task's bare name mean a version.

    The alias `prod` moves where it is set. It is set where the name would mean another version
    even so: these very bytes were kept before, and the version is held, or not the newest.
    """
    if served(session, version.task) != version.version:
        point(session, version.task, DEFAULT_ALIAS, version.version, at)
