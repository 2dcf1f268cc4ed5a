"""What the server answers about jobs, as far as the commands read it; the rest is for `--json`."""

from typing import Any

from pydantic import Field

from service.cli.replies import Reply

ENDED = frozenset({"succeeded", "failed", "cancelled"})


class BadRow(Reply):
    """A row that was left out."""

    line: int
    reason: str


class Rows(Reply):
    """What was found in a file of rows."""

    name: str
    rows: int
    bad_rows: int = 0
    classes: dict[str, int] = Field(default_factory=dict)
    duplicates: int = 0
    conflicts: int = 0
    overlap: int = 0
    problems: list[BadRow] = Field(default_factory=list)

    @property
    def faults(self) -> tuple[int, int, int]:
        """Rows that repeat others, texts under several labels, rows that are trained on too."""
        return self.duplicates, self.conflicts, self.overlap


class Progress(Reply):
    """How far a job has come."""

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float | None = None
    fraction: float | None = None
    seconds_left: float | None = None


class Epoch(Reply):
    """A finished epoch."""

    epoch: int
    train_loss: float
    validation_loss: float
    validation_accuracy: float
    best: bool
    seconds: float


class Failure(Reply):
    """Why a job failed."""

    code: str
    message: str
    param: str | None = None


class Result(Reply):
    """What a job came to."""

    version: int
    digest: str
    activated: bool
    reason: str
    metrics: dict[str, float] = Field(default_factory=dict)


class Job(Reply):
    """A training job."""

    id: str
    status: str
    task: str
    created_at: int
    started_at: int | None = None
    finished_at: int | None = None
    model: str | None = None
    fine_tuned_model: str | None = None
    description: str = ""
    hyperparameters: dict[str, Any] = Field(default_factory=dict)
    files: dict[str, Rows | None] = Field(default_factory=dict)
    warnings: list[str] = Field(default_factory=list)
    metadata: dict[str, str] = Field(default_factory=dict)
    queue_position: int | None = None
    progress: Progress | None = None
    metrics: list[Epoch] = Field(default_factory=list)
    run: int = 1
    crashes: int = 0
    error: Failure | None = None
    result: Result | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen to it unless it is resumed."""
        return self.status in ENDED

    @property
    def splits(self) -> list[tuple[str, Rows]]:
        """What was found in the files that there are."""
        return [(split, rows) for split, rows in self.files.items() if rows is not None]

    @property
    def epoch(self) -> int:
        """The epoch that is being trained, else the last one that was finished."""
        running = self.progress is not None and not self.ended
        return self.progress.epoch if running and self.progress else len(self.metrics)

    @property
    def epochs(self) -> int | None:
        """The most there will be."""
        return self.hyperparameters.get("n_epochs")

    @property
    def accuracy(self) -> float | None:
        """The best accuracy on the validation rows so far."""
        return max((epoch.validation_accuracy for epoch in self.metrics), default=None)


class JobPage(Reply):
    """One page of jobs, newest first."""

    data: list[Job]
    has_more: bool


class Deleted(Reply):
    """A job that is gone."""

    id: str
    deleted: bool


class Event(Reply):
    """Something that happened to a job.

    Attributes:
        number: within the job, from 1.
    """

    number: int
    created_at: int
    level: str
    type: str
    message: str
    data: dict[str, Any] = Field(default_factory=dict)
