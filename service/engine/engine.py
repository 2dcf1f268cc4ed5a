"""The engine as the rest of the server sees it."""

import asyncio
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from capsules.backbones.base import LoadedBackbone
from capsules.core import Encoding
from capsules.executors.base import Executor
from service.engine.bank import Bank
from service.engine.config import EngineConfig
from service.engine.observer import EngineObserver, tell
from service.engine.queue import RowQueue, stopped
from service.engine.records import NOTHING_ASKED, Outcome, RowRequest, Served, Timings
from service.engine.request import Request, Row
from service.engine.tokenising import Encoder, is_quick, turns
from service.engine.worker import ModelThread
from service.errors import DeadlineExceeded, NotFound, ServiceError, TooManyRequests, Unavailable


class Engine:
    """Classifies rows of any mix of tasks with one frozen backbone.

    Runs once: after :meth:`stop`, or once its model thread has died, it stays stopped.
    """

    def __init__(
        self,
        loaded: LoadedBackbone,
        executor: Executor,
        config: EngineConfig,
        observer: EngineObserver,
    ) -> None:
        """Set it up; :meth:`start` makes it ready.

        Args:
            loaded: the backbone, for its tokeniser and identity.
            executor: runs that backbone; the engine's alone from now on.
            config: limits and threads.
            observer: is told of the engine's work.
        """
        self.loaded = loaded
        self.executor = executor
        self.config = config
        self.observer = observer
        self.bank = Bank(loaded, executor.device, config.bank_slots)
        self.queue = RowQueue(
            config.queue_rows,
            config.limits(executor.device, padding_free=executor.padding_free),
            weights=config.weights,
            lanes=config.lanes(executor.lanes, padding_free=executor.padding_free),
        )
        self.worker = ModelThread(
            executor,
            self.bank,
            self.queue,
            observer,
            info=loaded.info,
            pad_id=loaded.tokeniser.pad_id,
            threads=config.threads,
            on_end=self.abandon,
        )
        self.pool = ThreadPoolExecutor(config.tokenise_threads, thread_name_prefix="tokenise")
        self.open: set[Request] = set()

    @property
    def healthy(self) -> bool:
        """Whether it is warm and takes requests."""
        ready = self.worker.ready
        return ready.done() and ready.exception() is None and not self.queue.closed

    @property
    def queue_depth(self) -> int:
        """Rows that wait for the model."""
        return len(self.queue)

    async def start(self) -> None:
        """Start the model thread and wait until the model is warm.

        The tokenisers library is told not to use threads of its own, unless the environment says
        otherwise: `tokenise_threads` are there already, and on the cores that the model runs on
        more of them only get in its way.

        Raises:
            Exception: whatever the warm-up raised.
        """
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        self.worker.start()
        # Shielded, since cancelling the wait must not cancel the warm-up's own record of success.
        await asyncio.shield(asyncio.wrap_future(self.worker.ready))

    async def stop(self) -> None:
        """Take no more requests, let those under way finish within the grace, fail the rest."""
        self.queue.close()
        if self.worker.thread.is_alive():
            await asyncio.to_thread(self.worker.thread.join, self.config.grace_s)
        self.abandon()
        self.pool.shutdown(wait=False)

    def abandon(self) -> None:
        """Fail whatever is still under way; safe to call from any thread, and twice."""
        self.queue.shut()
        for request in list(self.open):
            try:
                request.loop.call_soon_threadsafe(request.fail, stopped())
            except RuntimeError:
                continue  # its event loop is closed, so nobody waits

    async def classify(
        self,
        rows: Sequence[RowRequest],
        *,
        timeout: float,  # noqa: ASYNC109 - rows know the deadline too, so that the model thread drops them
        caller: str = "",
    ) -> Outcome:
        """Answer rows, each with its own capsule.

        Every capsule is pinned before the first await: one that is in the bank when this is
        called answers its rows, even if it is removed meanwhile.

        Args:
            rows: at most `queue_rows` of them.
            timeout: seconds after which the answer is of no use.
            caller: opaque key of who asks; callers take turns.

        Returns:
            An answer for each row, or why it has none.

        Raises:
            Unavailable: `queue_full`, or `engine_stopped`.
            TooManyRequests: `caller_queue_full`.
            DeadlineExceeded: the time is up; rows that wait for the model are dropped.
        """
        if not rows:
            return NOTHING_ASKED
        request = self.admit(rows, timeout, caller)
        try:
            tokenise_seconds = await self.enqueue(request)
            answers = await request.answered()
        except TimeoutError:
            tell(self.observer.expired, request.pending)
            raise DeadlineExceeded(
                "The answer was not ready in time; send fewer texts at once, or try again when the "
                "server is less busy.",
                code="deadline_exceeded",
            ) from None
        except asyncio.CancelledError:
            tell(self.observer.cancelled, request.pending)
            raise
        finally:
            self.leave(request)
        timings = Timings(tokenise_seconds, request.queue_seconds, request.forward_seconds)
        return Outcome(rows=answers, timings=timings)

    def admit(self, rows: Sequence[RowRequest], timeout: float, caller: str) -> Request:
        """Reserve places for a request and pin its capsules; all of it without an await.

        Raises:
            Unavailable: see :meth:`classify`.
            TooManyRequests: see :meth:`classify`.
        """
        try:
            if not self.healthy:
                raise stopped()
            self.queue.reserve(len(rows), caller)
        except (TooManyRequests, Unavailable) as error:
            tell(self.observer.rejected, len(rows), error.code)
            raise
        request = Request(rows, timeout, caller)
        self.open.add(request)
        gone = self.bank.pin(row.capsule for row in rows)
        for index, row in enumerate(rows):
            if row.capsule in gone:
                request.settle(index, removed(row.capsule))
            else:
                request.todo.append(index)
        self.queue.release(len(rows) - len(request.todo), caller)
        return request

    async def enqueue(self, request: Request) -> float:
        """Tokenise a request's rows and queue them; seconds that it took.

        Raises:
            Unavailable: `engine_stopped`.
            TimeoutError: the time is up.
        """
        started = time.monotonic()
        encoder = Encoder(self.loaded.tokeniser)
        for turn in turns(request.rows, request.todo):
            part = [request.rows[index] for index in turn]
            if is_quick(part):
                encodings = encoder.encode(part)
            else:
                try:
                    encoding = request.loop.run_in_executor(self.pool, encoder.encode, part)
                except RuntimeError:  # the pool has been shut down
                    raise stopped() from None
                async with asyncio.timeout(request.seconds_left):
                    encodings = await encoding
            self.put(request, turn, encodings)
        seconds = time.monotonic() - started
        tell(self.observer.tokenised, len(request.rows), seconds)
        return seconds

    def put(
        self, request: Request, turn: Sequence[int], encodings: Sequence[Encoding | ServiceError]
    ) -> None:
        """Queue the rows of one turn, but for those that cannot be classified.

        Raises:
            Unavailable: `engine_stopped`.
        """
        now = time.monotonic()
        queued: list[Row] = []
        refused: list[tuple[int, ServiceError]] = []
        for index, encoding in zip(turn, encodings, strict=True):
            if isinstance(encoding, ServiceError):
                refused.append((index, encoding))
            else:
                queued.append(Row(request, index, request.rows[index].capsule, encoding, now))
        self.queue.put(queued)
        request.queued += queued
        request.todo = request.todo[len(turn) :]
        if refused:
            self.queue.release(len(refused), request.caller)
            self.bank.unpin(request.rows[index].capsule for index, _ in refused)
            for index, error in refused:
                request.settle(index, error)

    def leave(self, request: Request) -> None:
        """Drop what is left of a request that nobody waits for any more."""
        self.open.discard(request)
        if not request.pending:
            return
        request.cancelled = True
        waiting = self.queue.withdraw(request.queued)
        self.queue.release(len(request.todo), request.caller)
        self.bank.unpin(row.capsule for row in waiting)
        self.bank.unpin(request.rows[index].capsule for index in request.todo)


def removed(capsule: Served) -> NotFound:
    """The error for a row whose capsule was removed before the engine was asked."""
    return NotFound(
        f"Version {capsule.version} of {capsule.task!r} has been removed; name another one.",
        code="version_not_found",
        field="task",
    )
