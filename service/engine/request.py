"""One call of the engine while it is under way, and its rows."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog

from capsules.core import Encoding
from service.engine.records import RowAnswer, RowRequest, Served
from service.errors import InternalError, ServiceError

logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)

Answer = RowAnswer | ServiceError


class Request:
    """The rows of one call, and what has come of them so far.

    Belongs to its event loop. The model thread reads `loop`, `deadline` and `cancelled`, and
    answers by way of the loop.

    Attributes:
        rows: what is asked.
        caller: opaque key of who asks.
        todo: positions of the rows that are not tokenised yet; their capsules are pinned and
            their places in the queue reserved.
        queued: the rows that have been put into the queue.
        loop: where the caller waits.
        deadline: when it gives up, on the monotonic clock.
        cancelled: whether nobody waits any more.
        answers: one for each row, None where there is none yet.
        pending: how many there are none for.
        queue_seconds: longest wait of its rows for the model.
        forward_seconds: longest time that one of its batches took the model.
        failure: why the whole request failed, or None.
        finished: done once there is nothing to wait for.
        late: whether that is because its time was up.
    """

    def __init__(self, rows: Sequence[RowRequest], timeout: float, caller: str = "") -> None:
        self.rows = rows
        self.caller = caller
        self.todo: list[int] = []
        self.queued: list[Row] = []
        self.loop = asyncio.get_running_loop()
        self.deadline = time.monotonic() + timeout
        self.cancelled = False
        self.answers: list[Answer | None] = [None] * len(rows)
        self.pending = len(rows)
        self.queue_seconds = 0.0
        self.forward_seconds = 0.0
        self.failure: ServiceError | None = None
        self.finished: asyncio.Future[None] = self.loop.create_future()
        self.late = False

    @property
    def seconds_left(self) -> float:
        """Until the deadline, and 0 after it."""
        return max(self.deadline - time.monotonic(), 0.0)

    def settle(self, index: int, answer: Answer) -> None:
        """Record the answer of one row."""
        self.answers[index] = answer
        self.pending -= 1
        if not self.pending:
            self.finish()

    def fail(self, error: ServiceError) -> None:
        """Give up the whole request, unless every row has its answer."""
        if self.pending:
            self.failure = error
            self.finish()

    def expire(self) -> None:
        """Note that the time is up, unless there is nothing to wait for any more."""
        if not self.finished.done():
            self.late = True
            self.finish()

    def finish(self) -> None:
        """Stop waiting; whoever waited may have been cancelled."""
        if not self.finished.done():
            self.finished.set_result(None)

    async def answered(self) -> tuple[Answer, ...]:
        """Wait for every row's answer, until the deadline.

        Raises:
            ServiceError: the whole request failed.
            TimeoutError: the time is up.
        """
        if not self.finished.done():
            # Costs a request less than the context of a timeout does.
            timer = self.loop.call_later(self.seconds_left, self.expire)
            try:
                await self.finished
            finally:
                timer.cancel()
        if self.failure is not None:
            raise self.failure
        if self.late:
            raise TimeoutError
        return tuple(answer for answer in self.answers if answer is not None)


@dataclass(slots=True, eq=False)
class Row:
    """One text on its way through the queue and the model; compared by identity, never changed.

    Attributes:
        request: whose it is.
        index: its position there.
        capsule: pinned until the row leaves the queue or the model is done with it.
        encoding: the tokenised text.
        enqueued: when it was handed to the queue, on the monotonic clock.
        tokens: of its text.
        slots: positions that its capsule takes.
    """

    request: Request
    index: int
    capsule: Served
    encoding: Encoding
    enqueued: float
    # Looked at time and again while it waits.
    tokens: int = field(init=False)
    slots: int = field(init=False)

    def __post_init__(self) -> None:
        self.tokens = len(self.encoding.input_ids)
        self.slots = self.capsule.slots

    @property
    def caller(self) -> str:
        """Who asks."""
        return self.request.caller

    @property
    def deadline(self) -> float:
        """When its caller gives up."""
        return self.request.deadline

    @property
    def cancelled(self) -> bool:
        """Whether its caller has gone."""
        return self.request.cancelled


@dataclass(frozen=True, slots=True)
class Answered:
    """The rows of one event loop that one batch answered.

    Attributes:
        rows: with the answer of each.
        begun: when the model was ready for the batch, on the monotonic clock.
        seconds: what it took from then.
    """

    rows: Sequence[tuple[Row, Answer]]
    begun: float
    seconds: float

    def deliver(self) -> None:
        """Hand the answers to their requests; runs on their event loop.

        A request that cannot take its answer fails, and the others get theirs.
        """
        for row, answer in self.rows:
            request = row.request
            request.queue_seconds = max(request.queue_seconds, self.begun - row.enqueued)
            request.forward_seconds = max(request.forward_seconds, self.seconds)
            try:
                request.settle(row.index, answer)
            except Exception as error:
                logger.error("reply_failed", exc_info=error)
                request.fail(undelivered())


def undelivered() -> InternalError:
    """The error of a request whose answer got lost on the way."""
    return InternalError(
        "The answer could not be delivered; send the request again. If it happens again, report "
        "the request id.",
        code="reply_failed",
    )
