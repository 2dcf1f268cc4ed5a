"""From what the model said to those who asked."""

import math
from asyncio import AbstractEventLoop
from collections.abc import Sequence

import structlog

from service.engine.batcher import Extent, Limits
from service.engine.observer import BatchReport
from service.engine.prepared import Prepared
from service.engine.records import RowAnswer
from service.engine.request import Answer, Answered, Row
from service.errors import InternalError

logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)


def answer(row: Row, probs: tuple[float, ...]) -> Answer:
    """A row's answer, unless its probabilities are no numbers."""
    # One sum finds any NaN or infinity among them.
    if not math.isfinite(sum(probs)):
        return InternalError(
            "The model's scores for this text are not finite numbers. If other texts fail too, "
            "retrain the capsule or choose dtype float32.",
            code="non_finite_scores",
        )
    return RowAnswer(probs=probs, input_tokens=row.tokens, truncated=row.encoding.truncated)


def inference_failed() -> InternalError:
    """The error of every row of a batch that failed."""
    return InternalError(
        "The model failed on the batch that held this text; send it again. If it happens again, "
        "report the request id.",
        code="inference_failed",
    )


def reply(rows: Sequence[Row], answers: Sequence[Answer], begun: float, seconds: float) -> None:
    """Send the answers to their event loops, one message each.

    Rows whose loop takes none go without, which costs the others nothing: mostly it is closed.
    """
    by_loop: dict[AbstractEventLoop, list[tuple[Row, Answer]]] = {}
    for row, given in zip(rows, answers, strict=True):
        by_loop.setdefault(row.request.loop, []).append((row, given))
    for loop, some in by_loop.items():
        try:
            loop.call_soon_threadsafe(Answered(some, begun, seconds).deliver)
        except Exception as error:  # noqa: BLE001 - the other loops' rows are to be answered
            logger.warning("reply_dropped", rows=len(some), reason=str(error))


def report(batch: Prepared, limits: Limits, begun: float, seconds: float) -> BatchReport:
    """What an observer is told of a batch."""
    extent = Extent()
    for row in batch.rows:
        extent = extent.and_one(row)
    return BatchReport(
        rows=extent.rows,
        tokens=extent.real,
        padded_tokens=extent.computed(limits),
        tasks=len({row.capsule.task for row in batch.rows}),
        forward_seconds=seconds,
        queue_seconds=tuple(begun - row.enqueued for row in batch.rows),
        prepare_seconds=batch.seconds,
        ahead=batch.ahead,
    )
