"""Who is told what the engine does; the metrics are one, a benchmark may be another."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, Protocol

import structlog

logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)

P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class BatchReport:
    """One batch that the model has run.

    Attributes:
        rows: how many texts it held.
        tokens: real positions, each row's own capsule slots included.
        padded_tokens: positions that went through the linear layers: rows times the longest, with
            the most slots; the real ones where the executor does not pad.
        tasks: how many distinct tasks it held.
        forward_seconds: what it took the model, heads included.
        queue_seconds: how long each row waited for the model, preparation included.
        prepare_seconds: padding its rows, gathering their capsules and preparing the pass.
        ahead: whether that was done while the model ran the batch before.
    """

    rows: int
    tokens: int
    padded_tokens: int
    tasks: int
    forward_seconds: float
    queue_seconds: tuple[float, ...]
    prepare_seconds: float
    ahead: bool


class EngineObserver(Protocol):
    """Is told of the engine's work.

    Methods are called from the engine's threads and from event loops, so they must be thread-safe
    and quick. What they raise is logged and costs nobody an answer.
    """

    def tokenised(self, rows: int, seconds: float) -> None:
        """The rows of one request were rendered and tokenised, waits for a thread included."""
        ...

    def batch_finished(self, report: BatchReport) -> None:
        """The model ran a batch, and its rows were answered."""
        ...

    def batch_failed(self, rows: int) -> None:
        """A batch of this many rows could not be prepared or run; each row got an error."""
        ...

    def batch_dropped(self, rows: int) -> None:
        """A batch was prepared that nobody waited for any more when the model came to it."""
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

    def batch_failed(self, rows: int) -> None:
        """See :class:`EngineObserver`."""

    def batch_dropped(self, rows: int) -> None:
        """See :class:`EngineObserver`."""

    def cancelled(self, rows: int) -> None:
        """See :class:`EngineObserver`."""

    def expired(self, rows: int) -> None:
        """See :class:`EngineObserver`."""

    def rejected(self, rows: int, reason: str) -> None:
        """See :class:`EngineObserver`."""


def tell(event: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
    """Call a method of an observer; what it raises ends here, and in the log."""
    try:
        event(*args, **kwargs)
    except Exception as error:  # whoever watches must not cost anybody an answer
        logger.error("observer_failed", exc_info=error)
