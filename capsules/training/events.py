"""What a training run tells those who watch it."""

from typing import Protocol

from pydantic import BaseModel, ConfigDict


class EpochReport(BaseModel):
    """One finished epoch.

    Attributes:
        epoch: from 1.
        train_loss: mean over the epoch's rows.
        validation_loss: mean cross-entropy on the validation rows.
        validation_accuracy: share of the validation rows that are right.
        best: whether this is the best epoch so far.
        seconds: wall-clock time, validation included.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    epoch: int
    train_loss: float
    validation_loss: float
    validation_accuracy: float
    best: bool
    seconds: float


class Watcher(Protocol):
    """Follows a run; whatever it raises ends the run after the last checkpoint."""

    def step(self, epoch: int, step: int, steps: int, loss: float) -> None:
        """A batch was trained on: `step` of `steps` in this epoch, counted from 1."""
        ...

    def epoch(self, report: EpochReport) -> None:
        """An epoch is finished and, where asked for, on disk."""
        ...


class Silent:
    """Watches nothing."""

    def step(self, epoch: int, step: int, steps: int, loss: float) -> None:
        """Ignore it."""

    def epoch(self, report: EpochReport) -> None:
        """Ignore it."""
