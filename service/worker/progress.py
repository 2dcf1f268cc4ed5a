"""How far a job has come, told to its ledger once a second; this is also how a cancel is heard."""

import time
from collections.abc import Callable, Sequence

from capsules.training.events import EpochReport
from service.jobs.records import Progress

TELL_EVERY_S = 1.0


class Reporter:
    """Watches one run; what `tell` raises ends the epoch.

    Args:
        tell: hears of it.
        epochs: at most so many.
        past: seconds that each finished epoch took.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        tell: Callable[[Progress], None],
        epochs: int,
        past: Sequence[float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.tell = tell
        self.epochs = epochs
        self.past = list(past)
        self.clock = clock
        self.began = clock()
        self.told = self.began - TELL_EVERY_S
        self.last: Progress | None = None

    def begin(self) -> None:
        """An epoch begins now."""
        self.began = self.clock()

    def step(self, epoch: int, step: int, steps: int, loss: float) -> None:
        """See `Watcher.step`."""
        self.last = Progress(
            epoch=epoch,
            epochs=self.epochs,
            step=step,
            steps=steps,
            loss=loss,
            seconds_left=self.seconds_left(epoch, step, steps),
        )
        self.pulse()

    def epoch(self, report: EpochReport) -> None:
        """See `Watcher.epoch`."""
        self.past.append(report.seconds)

    def pulse(self) -> None:
        """Tell where it is, unless that was done less than a second ago."""
        now = self.clock()
        if self.last is not None and now - self.told >= TELL_EVERY_S:
            self.told = now
            self.tell(self.last)

    def seconds_left(self, epoch: int, step: int, steps: int) -> float:
        """Seconds until the last epoch is over.

        An epoch is taken to last as long as the finished ones did on average; in the first one, as
        its steps so far have.
        """
        if self.past:
            expected = sum(self.past) / len(self.past)
        else:
            expected = (self.clock() - self.began) / step * steps
        return round(expected * (self.epochs - epoch + 1 - step / steps), 1)
