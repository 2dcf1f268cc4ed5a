"""Shows on standard error how far a long command has come."""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from capsules.cli.output import messages
from capsules.training.events import EpochReport

LOOK = (TextColumn("{task.description}"), BarColumn())
CLOCKS = (TimeElapsedColumn(), TextColumn("elapsed,"), TimeRemainingColumn(), TextColumn("left"))


class Bar:
    """A progress bar on a terminal; nothing in a log file."""

    def __init__(
        self,
        description: str,
        *,
        console: Console | None = None,
        clocks: Sequence[ProgressColumn] = CLOCKS,
    ) -> None:
        """Prepare a bar, whose end is not known yet.

        Args:
            description: in front of the bar.
            console: to show it on; by default standard error.
            clocks: behind the bar.
        """
        self.console = console or messages()
        self.progress = Progress(
            *LOOK,
            *clocks,
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self.task: TaskID = self.progress.add_task(description, total=None)

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.progress.stop()

    def advance(self, done: int, total: int) -> None:
        """Move on to `done` of `total`."""
        self.progress.update(self.task, completed=done, total=total)


class TrainingBar(Bar):
    """Follows a training run: a bar over all its steps, and a line for each finished epoch."""

    def __init__(self, epochs: int, *, console: Console | None = None) -> None:
        super().__init__("training", console=console)
        self.epochs = epochs
        self.measured = ""

    def step(self, epoch: int, step: int, steps: int, loss: float) -> None:
        """Move on by a batch. The time left is that of all epochs; early stopping may cut it."""
        self.progress.update(
            self.task,
            description=f"epoch {epoch}/{self.epochs}  loss {loss:.4f}{self.measured}",
        )
        self.advance((epoch - 1) * steps + step, self.epochs * steps)

    def epoch(self, report: EpochReport) -> None:
        """Say what the epoch gave."""
        self.measured = f"  accuracy {report.validation_accuracy:.4f}"
        self.console.print(
            f"epoch {report.epoch}/{self.epochs}  train loss {report.train_loss:.4f}  "
            f"validation loss {report.validation_loss:.4f}  "
            f"accuracy {report.validation_accuracy:.4f}{' (best)' if report.best else ''}  "
            f"{report.seconds:.1f} s"
        )
