"""Turns what the ledger tells into the shapes of the API."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from service.api.jobs.schemas import (
    BadRow,
    Epoch,
    FilesFound,
    Hyperparameters,
    JobEnded,
    JobEvent,
    JobFailure,
    JobOutcome,
    JobProgress,
    RowsFound,
    TrainingJob,
    TrainingJobList,
)
from service.jobs.records import DataFacts, Event, Job, JobError, JobResult, Progress
from service.jobs.spec import JobSpec
from service.state import BackboneFacts, Warm

T = TypeVar("T")
Shape = TypeVar("Shape")

DIGITS = 24
"""Of a digest in a file's id."""


class Shapes:
    """Shapes jobs as one server tells them.

    Args:
        warm: the server, whose backbone decides what was left to it.
    """

    def __init__(self, warm: Warm) -> None:
        self.backbone: BackboneFacts = warm.backbone
        self.rehearsal = warm.jobs.rehearsal

    def page(self, jobs: Sequence[Job], *, more: bool) -> bytes:
        """A page of jobs, as JSON; made in a thread, since thousands of labels may be in it."""
        shaped = TrainingJobList(data=[self.job(job) for job in jobs], has_more=more)
        return shaped.model_dump_json().encode()

    def job(self, job: Job) -> TrainingJob:
        """A job."""
        spec = job.spec
        files = {split: rows_of(facts) for split, facts in job.files.items()}
        train, validation, test = (files.get(split) for split in ("train", "validation", "test"))
        return TrainingJob(
            id=job.id,
            status=job.status,
            created_at=seconds(job.created_at),
            started_at=given(job.started_at, seconds),
            finished_at=given(job.finished_at, seconds),
            estimated_finish=estimated_finish(job),
            model=self.backbone.id,
            fine_tuned_model=model_of(job),
            hyperparameters=self.hyperparameters(spec),
            training_file=given(train, id_of),
            validation_file=given(validation, id_of),
            test_file=given(test, id_of),
            seed=spec.seed,
            error=given(job.error, failure_of),
            metadata=spec.metadata,
            task=spec.task,
            description=spec.description,
            spec=spec.model_dump(mode="json"),
            files=FilesFound(train=train, validation=validation, test=test),
            warnings=list(job.warnings),
            queue_position=job.position,
            progress=given(job.progress, progress_of),
            metrics=[Epoch.model_validate(report) for report in job.epochs],
            run=job.run,
            crashes=job.crashes,
            result=given(job.result, outcome_of),
        )

    def hyperparameters(self, spec: JobSpec) -> Hyperparameters:
        """How it is trained, with what was left to the server."""
        rate = spec.learning_rate or self.rehearsal.learning_rate
        longest = spec.max_length or self.rehearsal.max_length(spec.variant, spec.length)
        return Hyperparameters(
            n_epochs=spec.epochs,
            batch_size=spec.batch_size,
            learning_rate=rate,
            patience=spec.patience,
            variant=spec.variant,
            length=spec.length,
            layers=spec.layers if isinstance(spec.layers, str) else list(spec.layers),
            max_length=longest,
            seed=spec.seed,
        )


def given(value: T | None, shape: Callable[[T], Shape]) -> Shape | None:
    """A value in a shape, if there is one."""
    return None if value is None else shape(value)


def id_of(file: RowsFound) -> str:
    """A file's id."""
    return file.id


def failure_of(error: JobError) -> JobFailure:
    """Why a job failed."""
    return JobFailure(code=error.code, message=error.message, param=error.param)


def rows_of(facts: DataFacts) -> RowsFound:
    """What was found in a file."""
    return RowsFound(
        id=f"file-{facts.digest[:DIGITS]}",
        name=facts.name,
        bytes=facts.size,
        digest=facts.digest,
        rows=facts.rows,
        bad_rows=facts.bad_rows,
        classes=dict(facts.classes),
        duplicates=facts.duplicates,
        conflicts=facts.conflicts,
        overlap=facts.overlap,
        problems=[BadRow(line=line, reason=reason) for line, reason in facts.problems],
    )


def progress_of(progress: Progress) -> JobProgress:
    """How far a job has come."""
    done = progress.epoch - 1 + progress.step / max(progress.steps, 1)
    fraction = min(max(done / max(progress.epochs, 1), 0.0), 1.0)
    return JobProgress(**asdict(progress), fraction=round(fraction, 4))


def outcome_of(result: JobResult) -> JobOutcome:
    """What a job came to."""
    return JobOutcome(
        version=result.version,
        digest=result.digest,
        activated=result.activated,
        reason=result.reason,
        metrics=dict(result.metrics),
    )


def event_of(event: Event) -> JobEvent:
    """Something that happened to a job."""
    return JobEvent(
        id=f"ftevent-{event.job.removeprefix('ftjob-')}-{event.number}",
        number=event.number,
        created_at=seconds(event.at),
        level=event.level,
        type=event.type,
        message=event.message,
        data=dict(event.data),
    )


def ended_of(name: str, job: Job | None) -> JobEnded:
    """The end of a job.

    Args:
        name: its id.
        job: the job; None where it was deleted.
    """
    if job is None:
        return JobEnded(id=name, status="deleted", fine_tuned_model=None, error=None)
    assert job.status in ("succeeded", "failed", "cancelled"), "it has ended"
    return JobEnded(
        id=job.id,
        status=job.status,
        fine_tuned_model=model_of(job),
        error=given(job.error, failure_of),
    )


def model_of(job: Job) -> str | None:
    """The version that a job came to, as a client may call it."""
    return None if job.result is None else f"{job.result.task}@{job.result.version}"


def seconds(time: datetime) -> int:
    """A time as OpenAI's API tells it."""
    return int(time.timestamp())


def estimated_finish(job: Job) -> int | None:
    """When a running job will be done at its present pace, if that can be told."""
    if job.status != "running" or job.progress is None or job.progress.seconds_left is None:
        return None
    return seconds(datetime.now(UTC) + timedelta(seconds=job.progress.seconds_left))
