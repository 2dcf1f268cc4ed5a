"""The one thread that owns the model."""

import math
import threading
import time
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from itertools import chain

import structlog
import torch

from capsules.backbones.base import BackboneInfo
from capsules.core import TokenBatch
from capsules.executors.base import Executor
from capsules.injection import PromptGroup, Prompts
from capsules.model import pad
from capsules.variants.registry import variant
from service.engine.bank import Bank
from service.engine.batcher import Limits
from service.engine.observer import BatchReport, EngineObserver
from service.engine.queue import RowQueue
from service.engine.records import RowAnswer
from service.engine.request import Answer, Answered, Row
from service.errors import InternalError

logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)

WARM_UP_TOKENS = (16, 128)


class ModelThread:
    """Takes batches from the queue, runs them and answers their rows, until the queue ends.

    A batch that fails fails its own rows. Anything else that goes wrong ends the thread, and with
    it the queue, so that nobody waits for an answer that cannot come.
    """

    def __init__(
        self,
        executor: Executor,
        bank: Bank,
        queue: RowQueue,
        observer: EngineObserver,
        *,
        info: BackboneInfo,
        pad_id: int,
        threads: int | None,
        on_end: Callable[[], None],
    ) -> None:
        """Set it up; :meth:`start` runs it.

        Args:
            executor: the model, which nobody else uses from then on.
            bank: where the rows' capsules are.
            queue: where the rows come from.
            observer: is told of every batch.
            info: the backbone, for the warm-up.
            pad_id: token id to fill short rows with.
            threads: torch's threads for one operation, or None.
            on_end: called in the thread when it ends, for whatever reason.
        """
        self.executor = executor
        self.bank = bank
        self.queue = queue
        self.observer = observer
        self.info = info
        self.pad_id = pad_id
        self.threads = threads
        self.on_end = on_end
        self.ready: Future[None] = Future()
        # A daemon, since a device that hangs must not keep the process alive.
        self.thread = threading.Thread(target=self.main, name="model", daemon=True)

    def start(self) -> None:
        """Start the thread; `ready` tells when the model is warm, or why it will never be."""
        self.thread.start()

    def main(self) -> None:
        """What the thread runs."""
        try:
            if self.threads is not None:
                torch.set_num_threads(self.threads)
            self.warm_up()
            self.ready.set_result(None)
            self.serve()
        except BaseException as error:  # nothing above the thread could tell anyone
            logger.critical("model_thread_died", exc_info=error)
            if not self.ready.done():
                self.ready.set_exception(
                    error if isinstance(error, Exception) else RuntimeError(repr(error))
                )
        finally:
            self.on_end()

    def warm_up(self) -> None:
        """Run the model once at each of a few sizes, so that no request pays for first times."""
        for rows, tokens in warm_up_shapes(self.queue.limits, self.info.max_tokens):
            batch = TokenBatch(
                input_ids=torch.full((rows, tokens), self.pad_id, dtype=torch.int64),
                attention_mask=torch.ones(rows, tokens, dtype=torch.bool),
            )
            self.executor.features(batch, blank_prompts(self.info, rows, self.executor.device))

    def serve(self) -> None:
        """Run batch after batch until the queue ends."""
        while (picked := self.queue.take()) is not None:
            self.bank.unpin(row.capsule for row in chain(picked.cancelled, picked.expired))
            if picked.batch:
                self.run(picked.batch)

    def run(self, batch: Sequence[Row]) -> None:
        """Answer the rows of one batch, if only with an error."""
        started = time.monotonic()
        try:
            answers = self.answers(batch)
        except Exception as error:
            if self.device_is_lost():
                raise
            logger.error("batch_failed", rows=len(batch), exc_info=error)
            answers = [inference_failed()] * len(batch)
        finally:
            self.bank.unpin(row.capsule for row in batch)
        seconds = time.monotonic() - started
        reply(batch, answers, started, seconds)
        try:
            self.observer.batch_finished(report(batch, started, seconds))
        except Exception as error:  # whoever watches must not stop the model
            logger.error("observer_failed", exc_info=error)

    def answers(self, batch: Sequence[Row]) -> list[Answer]:
        """Gather, run, apply the heads; one answer a row."""
        tokens = pad([row.encoding for row in batch], self.pad_id)
        with self.bank.gather([row.capsule for row in batch]) as gathered:
            features = self.executor.features(tokens, gathered.prompts, gathered.heads.reading)
            probabilities = gathered.heads.probabilities(features)
        return [answer(row, probs) for row, probs in zip(batch, probabilities, strict=True)]

    def device_is_lost(self) -> bool:
        """Whether even the smallest operation fails, as after a fault that CUDA does not survive."""
        try:
            torch.ones(1, device=self.executor.device).item()
        except RuntimeError:
            return True
        return False


def warm_up_shapes(limits: Limits, max_tokens: int) -> Iterator[tuple[int, int]]:
    """Rows and tokens of the warm-up batches: one row and as many as a batch may hold."""
    for wanted in WARM_UP_TOKENS:
        tokens = min(wanted, max_tokens)
        yield 1, tokens
        yield max(1, min(limits.max_rows, limits.max_tokens // (tokens + 1))), tokens


def blank_prompts(info: BackboneInfo, rows: int, device: torch.device) -> Prompts:
    """A capsule of zeros for every row."""
    addition = variant("addition")
    layers = tuple(range(info.num_layers))
    tensors = {
        name: torch.zeros((rows, *shape), device=device)
        for name, shape in addition.shapes(info.geometry, len(layers), 1).items()
    }
    return Prompts((PromptGroup(addition, 1, layers, tensors),))


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


def reply(batch: Sequence[Row], answers: Sequence[Answer], picked: float, seconds: float) -> None:
    """Send the answers to their event loops, one message each."""
    by_loop: dict[AbstractEventLoop, list[tuple[Row, Answer]]] = {}
    for row, given in zip(batch, answers, strict=True):
        by_loop.setdefault(row.request.loop, []).append((row, given))
    for loop, rows in by_loop.items():
        try:
            loop.call_soon_threadsafe(Answered(rows, picked, seconds).deliver)
        except RuntimeError as error:
            logger.warning("reply_dropped", rows=len(rows), reason=str(error))


def report(batch: Sequence[Row], picked: float, seconds: float) -> BatchReport:
    """What an observer is told of a batch."""
    width = max(row.tokens for row in batch) + max(row.slots for row in batch)
    return BatchReport(
        rows=len(batch),
        tokens=sum(row.tokens + row.slots for row in batch),
        padded_tokens=len(batch) * width,
        tasks=len({row.capsule.task for row in batch}),
        forward_seconds=seconds,
        queue_seconds=tuple(picked - row.enqueued for row in batch),
    )
