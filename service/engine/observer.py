"""Who is told what the engine does; the metrics are one, a benchmark may be another."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class BatchReport:
    """One batch that the model thread is done with, whether it succeeded or not.

    Attributes:
        rows: how many texts it held.
        tokens: real positions, each row's own capsule slots included.
        padded_tokens: positions computed: rows times the longest, with the most slots.
        tasks: how many distinct tasks it held.
        forward_seconds: from the pick to the answers: gather, forward and heads.
        queue_seconds: how long each row waited for the model.
    """

    rows: int
    tokens: int
    padded_tokens: int
    tasks: int
    forward_seconds: float
    queue_seconds: tuple[float, ...]


class EngineObserver(Protocol):
    """Is told of the engine's work.

    Methods are called from the model thread and from event loops, so they must be thread-safe and
    quick.
    """

    def tokenised(self, rows: int, seconds: float) -> None:
        """The rows of one request were rendered and tokenised, waits for a thread included."""
        ...

    def batch_finished(self, report: BatchReport) -> None:
        """A batch was answered."""
        ...

    def cancelled(self, rows: int) -> None:
        """A client went away while this many of its rows had no answer."""
        ...

    def expired(self, rows: int) -> None:
        """A request's time was up while this many of its rows had no answer."""
        ...

    def rejected(self, rows: int, reason: str) -> None:
        """A request of this many rows was turned away; `reason` is the error's code."""
        ...


class SilentObserver:
    """Measures nothing."""

    def tokenised(self, rows: int, seconds: float) -> None:
        """See :class:`EngineObserver`."""

    def batch_finished(self, report: BatchReport) -> None:
        """See :class:`EngineObserver`."""

    def cancelled(self, rows: int) -> None:
        """See :class:`EngineObserver`."""

    def expired(self, rows: int) -> None:
        """See :class:`EngineObserver`."""

    def rejected(self, rows: int, reason: str) -> None:
        """See :class:`EngineObserver`."""
