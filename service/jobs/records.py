"""What is known of training jobs: small frozen records, without HTTP, SQL or torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from service.jobs.spec import JobSpec

Status = Literal["validating_files", "queued", "running", "succeeded", "failed", "cancelled"]
"""Where a job is; named as in OpenAI's fine-tuning API.

    validating_files → queued ⇄ running → succeeded | failed
    validating_files, queued, running → cancelled;  failed, cancelled → queued, when resumed

From `running` back to `queued` goes a job whose worker was stopped or lost.
"""

ENDED: frozenset[Status] = frozenset({"succeeded", "failed", "cancelled"})

Split = Literal["train", "validation", "test"]
Level = Literal["info", "warning", "error"]
EventType = Literal["message", "metrics"]


@dataclass(frozen=True, slots=True)
class DataFacts:
    """What was found in one file of rows.

    Attributes:
        name: the file's name as it was sent, or `inline`.
        size: of what was sent, in bytes.
        rows: usable rows.
        bad_rows: rows left out.
        digest: hex sha256 of the usable rows, see `capsules.data.base.digest_of`.
        classes: rows by label.
        duplicates: rows that repeat the inputs of an earlier row.
        conflicts: distinct inputs that occur under more than one label.
        overlap: rows whose inputs occur among the training rows too; 0 for these themselves.
        problems: the first rows left out, at most 20: line, from 1, and reason.
    """

    name: str
    size: int
    rows: int
    bad_rows: int
    digest: str
    classes: Mapping[str, int]
    duplicates: int = 0
    conflicts: int = 0
    overlap: int = 0
    problems: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class DataFile:
    """One split's rows, checked, as they are kept: see `capsules.data.packed`."""

    facts: DataFacts
    content: bytes


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a running job has come.

    Attributes:
        epoch: the one being trained, from 1.
        epochs: at most so many.
        step: batches of this epoch done.
        steps: batches of an epoch.
        loss: of the last batch.
        seconds_left: until the last epoch is over, if none is saved by early stopping; None before
            that can be told.
    """

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float | None
    seconds_left: float | None


@dataclass(frozen=True, slots=True)
class JobError:
    """Why a job failed: a code, a sentence with the remedy, and the option to change, if one is."""

    code: str
    message: str
    param: str | None = None


@dataclass(frozen=True, slots=True)
class JobResult:
    """What a job came to.

    Attributes:
        task: the task.
        version: the version that was registered.
        digest: of its file.
        activated: whether the task's bare name means it now.
        reason: why, or why not.
        metrics: by name, such as `validation_accuracy`.
    """

    task: str
    version: int
    digest: str
    activated: bool
    reason: str
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Job:
    """A training job.

    Attributes:
        id: `ftjob-` and 24 of 0-9 a-f.
        spec: what it is asked to do.
        status: where it is.
        created_at: when it was submitted, in UTC.
        started_at: when a worker first took it up.
        finished_at: when it ended; None unless it has.
        run: how often it was queued: 1 at first, one more each time it is resumed, or given back
            by a worker that was stopped, or taken from one that was lost.
        crashes: how many workers died while they trained it, since it was last resumed.
        worker: name of the worker that trains it, while it is running.
        position: 1 for the next to be taken up, while it is queued.
        files: what was found in each split.
        warnings: what its owner should know of the rows, in sentences.
        progress: while it is running, and as it was where it stopped.
        epochs: the finished epochs, see `capsules.training.events.EpochReport`.
        error: why it failed.
        result: what it came to, once it has succeeded.
    """

    id: str
    spec: JobSpec
    status: Status
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    run: int = 1
    crashes: int = 0
    worker: str | None = None
    position: int | None = None
    files: Mapping[Split, DataFacts] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    progress: Progress | None = None
    epochs: tuple[Mapping[str, Any], ...] = ()
    error: JobError | None = None
    result: JobResult | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen to it unless it is resumed."""
        return self.status in ENDED


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a job; written in the transaction in which it did.

    Attributes:
        number: of the event within the job, from 1, without gaps.
        job: id of the job.
        at: when, in UTC.
        level: how bad it is.
        type: `metrics` of an epoch, else `message`.
        message: a sentence.
        data: the same for programs.
    """

    number: int
    job: str
    at: datetime
    level: Level
    type: EventType
    message: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Idempotency:
    """A client's key for a submission, and the digest of all that it submitted under it."""

    key: str
    digest: str


@dataclass(frozen=True, slots=True)
class Slot:
    """A place for a worker process, outliving the process that holds it.

    What a process began in a slot, the next one to take the slot goes on with.

    Attributes:
        name: such as `worker-1`.
        token: of the process that holds it; no other has the same.
        host: the machine that process runs on.
        pid: its process id there.
        seen_at: when it last said that it lives, in UTC.
        released: whether it gave the slot back.
    """

    name: str
    token: str
    host: str
    pid: int
    seen_at: datetime
    released: bool


@dataclass(frozen=True, slots=True)
class Claim:
    """A worker's right to write about a job: void once the job was cancelled or given to another.

    Attributes:
        job: id of the job.
        run: the run it was claimed for.
        token: of the worker process.
    """

    job: str
    run: int
    token: str


@dataclass(frozen=True, slots=True)
class NewVersion:
    """A trained capsule, to be registered.

    Attributes:
        task: its task.
        digest: hex sha256 of the file.
        manifest: the file's manifest.
        content: the file.
        evaluation: how good it is, see `capsules.evaluation.metrics.Report`, with the split it was
            measured on.
    """

    task: str
    digest: str
    manifest: Mapping[str, Any]
    content: bytes
    evaluation: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Activation:
    """Whether a new version is to be served under its task's bare name.

    Attributes:
        activate: serve it, moving the alias `prod` where it is set; else it is held.
        expected: the version that the decision was made against, None for none served; if another
            is served by now, nothing is registered and the decision has to be made again.
        reason: a sentence that says why.
    """

    activate: bool
    expected: int | None
    reason: str
