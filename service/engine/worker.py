"""The one thread that owns the model, and the one that prepares its next batch."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import chain
from queue import SimpleQueue

import structlog
import torch

from capsules.backbones.base import BackboneInfo
from capsules.executors.base import Executor
from service.engine.bank import Bank
from service.engine.batcher import Pick
from service.engine.observer import EngineObserver, tell
from service.engine.prepared import Prepared, prepare
from service.engine.queue import AHEAD, RowQueue, Share
from service.engine.replies import answer, inference_failed, reply, report
from service.engine.request import Answer, Row
from service.engine.warm_up import warm_up

logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)


class ModelThread:
    """Takes batches from the queue, runs them and answers their rows, until the queue ends.

    Where the executor has lanes there is a thread for each, which does all of this by itself: the
    cores are busy with one batch while another is prepared. Otherwise, while the model runs, a
    second thread prepares the next batch: exactly one. Where none is ahead when the model is done,
    the model thread prepares one itself, so that nothing waits for a thread to wake up.

    A batch that fails fails its own rows. Anything else that goes wrong in either thread ends
    both, and with them the queue, so that nobody waits for an answer that cannot come.
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
            on_end: called in the thread when it ends, for whatever reason; shuts the queue.
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
        # One item for each batch that the queue calls `AHEAD`; None where there is none to run.
        self.handed: SimpleQueue[Prepared | None] = SimpleQueue()
        # Daemons, since a device that hangs must not keep the process alive.
        self.thread = threading.Thread(target=self.main, name="model", daemon=True)
        self.others = (
            [
                threading.Thread(target=self.lane, name=f"model-{number}", daemon=True)
                for number in range(2, queue.lanes + 1)
            ]
            if queue.lanes > 1
            else [threading.Thread(target=self.help, name="prepare", daemon=True)]
        )

    def start(self) -> None:
        """Start the thread; `ready` tells when the model is warm, or why it will never be."""
        self.thread.start()

    def main(self) -> None:
        """What the model thread runs."""
        try:
            if self.threads is not None:
                torch.set_num_threads(self.threads)
            warm_up(self.executor, self.info, self.queue.limits, self.pad_id)
            for thread in self.others:
                thread.start()
            self.ready.set_result(None)
            if self.queue.lanes > 1:
                self.share()
            else:
                self.serve()
        except BaseException as error:  # nothing above the thread could tell anyone
            logger.critical("model_thread_died", exc_info=error)
            if not self.ready.done():
                self.ready.set_exception(
                    error if isinstance(error, Exception) else RuntimeError(repr(error))
                )
            self.queue.shut()
        finally:
            if self.queue.lanes > 1:
                # Their rows are answered before any that still wait are given up.
                self.join()
            self.on_end()
            self.give_up()

    def join(self) -> None:
        """Wait for the other threads, which end with the queue."""
        for thread in self.others:
            if thread.ident is not None:
                thread.join()

    def give_up(self) -> None:
        """Release a batch that was prepared and will not be run; the queue is shut."""
        self.join()
        while not self.handed.empty():
            prepared = self.handed.get()
            if prepared is not None:
                prepared.held.close()

    def serve(self) -> None:
        """Run batch after batch until the queue ends."""
        while (picked := self.queue.take()) is not None:
            prepared = self.handed.get() if picked is AHEAD else self.prepared(picked, ahead=False)
            if prepared is not None:
                self.finish(prepared)

    def help(self) -> None:
        """What the other thread runs: prepare batch after batch, one ahead of the model."""
        try:
            while (picked := self.queue.take_ahead()) is not None:
                self.handed.put(self.prepared(picked, ahead=True))
        except BaseException as error:  # nothing above the thread could tell anyone
            logger.critical("prepare_thread_died", exc_info=error)
            self.queue.shut()
            self.handed.put(None)  # the model thread may be waiting for it

    def run(self, rows: Sequence[Row], *, alone: bool = True) -> None:
        """Answer the rows of one batch, if only with an error; for those who run it by themselves.

        Args:
            rows: of the batch, their capsules pinned.
            alone: whether nothing else runs meanwhile.
        """
        prepared = self.prepared(Pick(tuple(rows), (), ()), ahead=False, alone=alone)
        if prepared is not None:
            self.finish(prepared)

    def share(self) -> None:
        """What each thread runs where the executor has lanes: batch after batch, all by itself."""
        share: Share | None = None
        while (share := self.queue.take_share(share)) is not None:
            prepared = self.prepared(share.picked, ahead=False, alone=share.alone)
            if prepared is not None:
                self.finish(prepared)

    def lane(self) -> None:
        """What the threads beside the first run where the executor has lanes."""
        try:
            self.share()
        except BaseException as error:  # nothing above the thread could tell anyone
            logger.critical("model_thread_died", exc_info=error)
            self.queue.shut()

    def prepared(self, picked: Pick[Row], *, ahead: bool, alone: bool = True) -> Prepared | None:
        """What was picked, ready to run; None where that is nothing, or failed."""
        self.bank.unpin(row.capsule for row in chain(picked.cancelled, picked.expired))
        if not picked.batch:
            return None
        started = time.monotonic()
        try:
            return prepare(
                picked.batch, self.executor, self.bank, self.pad_id, ahead=ahead, alone=alone
            )
        except Exception as error:  # noqa: BLE001 - a batch fails its own rows only
            self.fail(picked.batch, error, started)
            return None

    def finish(self, batch: Prepared) -> None:
        """Answer the rows of a prepared batch, unless nobody waits for any of them."""
        begun = time.monotonic()
        if not batch.wanted(begun):
            batch.held.close()
            tell(self.observer.batch_dropped, len(batch.rows))
            return
        try:
            with batch.held:
                answers = self.answers(batch)
        except Exception as error:  # noqa: BLE001 - a batch fails its own rows only
            self.fail(batch.rows, error, begun)
            return
        seconds = time.monotonic() - begun
        reply(batch.rows, answers, begun, seconds)
        tell(self.observer.batch_finished, report(batch, self.queue.limits, begun, seconds))

    def answers(self, batch: Prepared) -> list[Answer]:
        """Run a batch and apply its heads; one answer a row.

        On a GPU the pass returns early; reading the probabilities waits for it to end.
        """
        probabilities = batch.heads.probabilities(batch.forward())
        return [answer(row, probs) for row, probs in zip(batch.rows, probabilities, strict=True)]

    def fail(self, rows: Sequence[Row], error: Exception, begun: float) -> None:
        """Answer the rows of a batch that failed.

        Raises:
            Exception: the error itself, where the device is lost and nothing can run any more.
        """
        if self.device_is_lost():
            raise error
        logger.error("batch_failed", rows=len(rows), exc_info=error)
        reply(rows, [inference_failed()] * len(rows), begun, time.monotonic() - begun)
        tell(self.observer.batch_failed, len(rows))

    def device_is_lost(self) -> bool:
        """Whether even the smallest operation fails, as after a fault that CUDA does not survive."""
        try:
            torch.ones(1, device=self.executor.device).item()
        except RuntimeError:
            return True
        return False
