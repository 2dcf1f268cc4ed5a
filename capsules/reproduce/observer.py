"""What a comparison tells those who watch it."""

from typing import Protocol

from capsules.reproduce.record import Row, Skip
from capsules.training.events import Silent, Watcher


class Observer(Protocol):
    """Follows a comparison; whatever it raises ends it, with all finished runs kept."""

    def plan(self, runs: int, done: int) -> None:
        """There are so many runs, of which so many were finished before."""
        ...

    def watch(self, name: str, learning_rate: float) -> Watcher:
        """Training begins, or goes on; the result follows it."""
        ...

    def finished(self, row: Row) -> None:
        """A run is finished and on disk."""
        ...

    def skipped(self, skip: Skip) -> None:
        """A run failed; the others go on."""
        ...


class Unobserved:
    """Watches nothing."""

    def plan(self, runs: int, done: int) -> None:
        """Ignore it."""

    def watch(self, name: str, learning_rate: float) -> Watcher:
        """Ignore it."""
        return Silent()

    def finished(self, row: Row) -> None:
        """Ignore it."""

    def skipped(self, skip: Skip) -> None:
        """Ignore it."""
