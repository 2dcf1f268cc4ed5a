"""Follows the store's change log, so that what other processes write is served here as well.

Training workers and other servers write to the same database. The follower reads the log again and
again, and has each task that a change is about compared with the store. Its own server's changes are
in the log too; the catalogue shows already what they led to, so nothing is read for them.
docs/decisions/0011-followers.md tells why it is done this way.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import NoReturn

import structlog

from service.registry.cancellation import finish
from service.registry.locks import TaskLocks
from service.registry.ports import RegistryObserver
from service.registry.reconciler import Reconciler
from service.store.base import Change
from service.store.errors import ChangesUnavailable, StoreError, StoreUnavailable

INTERVAL_S = 0.5
LONGEST_PAUSE_S = 5.0
"""Between two attempts while the store cannot be read."""

PAGE = 1000

logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)


class Follower:
    """Keeps the catalogue in step with a store that others write to.

    Tasks are seen to one after the other, so that a burst of changes takes one of the reading
    threads at most. A task that is being changed here is seen to once that is over, and nobody
    else waits for it.

    Args:
        reconciler: compares a task of its catalogue with its store, whose log is read.
        locks: shared by all changes of a task.
        position: the number of the last change that the catalogue is known to show.
        observer: is told of what is worth measuring.
        interval_s: between two looks at the log.
        sleep: waits for some seconds.
        clock: seconds that only ever grow.
    """

    def __init__(
        self,
        reconciler: Reconciler,
        locks: TaskLocks,
        position: int,
        observer: RegistryObserver,
        *,
        interval_s: float = INTERVAL_S,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.reconciler = reconciler
        self.store = reconciler.store
        self.catalogue = reconciler.catalogue
        self.lane = reconciler.lanes.reading
        self.locks = locks
        self.position = position
        self.observer = observer
        self.interval_s = interval_s
        self.sleep = sleep
        self.clock = clock
        self.in_step_at = clock()
        self.pause_s = interval_s
        self.trouble: str | None = None
        # The tasks to be seen to, with the changes that they are to show; None: compare them
        # with the store, whatever they show.
        self.backlog: dict[str, list[Change] | None] = {}
        self.waiting: set[str] = set()
        self.failing: set[str] = set()

    def lag(self) -> float:
        """For how many seconds the catalogue may have been behind the store."""
        return self.clock() - self.in_step_at

    async def run(self) -> NoReturn:
        """Follow until cancelled; whatever fails is tried again."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self.sleep(await self.turn(group))

    async def turn(self, group: asyncio.TaskGroup) -> float:
        """Follow what there is to follow.

        Args:
            group: has the tasks that wait for a change that is made here.

        Returns:
            Seconds until the next turn.
        """
        try:
            more = await self.read()
            await self.settle_all(group)
        except Exception as error:  # noqa: BLE001 - it must go on, since nobody would notice its end
            self.report(error)
            self.pause_s = min(2 * self.pause_s, LONGEST_PAUSE_S)
            return self.pause_s
        if self.trouble is not None:
            logger.info("follower_recovered", behind_s=round(self.lag(), 1))
            self.trouble = None
        self.pause_s = self.interval_s
        if not (more or self.backlog or self.waiting):
            self.in_step_at = self.clock()
        return 0.0 if more else self.interval_s

    def report(self, error: Exception) -> None:
        """Log why changes are not followed at present, once for as long as it is the same."""
        trouble = f"{type(error).__name__}: {error}"
        if trouble == self.trouble:
            return
        self.trouble = trouble
        if isinstance(error, StoreError):
            logger.warning("follower_behind", reason=str(error))
        else:
            logger.exception("follower_behind", reason=trouble)

    async def read(self) -> bool:
        """Take the next changes off the log, and return whether there may be more.

        Raises:
            StoreError: the log cannot be read; nothing was taken.
        """
        try:
            changes = await self.lane.run(None, self.store.changes_since, self.position, PAGE)
        except ChangesUnavailable as error:
            await self.survey(error)
            return False
        for change in changes:
            known = self.backlog.setdefault(change.task, [])
            if known is not None:
                known.append(change)
            self.position = change.sequence
        return len(changes) == PAGE

    async def survey(self, lost: ChangesUnavailable) -> None:
        """Compare everything with the store, since the log does not tell what has changed.

        Nothing is taken out meanwhile; tasks that differ are seen to like any other.

        Raises:
            StoreError: the store cannot be read; nothing was done.
        """
        head = await self.lane.run(None, self.store.head_sequence)
        tasks = await self.lane.run(None, self.reconciler.survey)
        self.backlog.update(dict.fromkeys(tasks))
        self.position = head
        logger.warning("changes_lost", reason=str(lost), differing_tasks=len(tasks))

    async def settle_all(self, group: asyncio.TaskGroup) -> None:
        """See to every task of the backlog that is not seen to already.

        Raises:
            StoreUnavailable: the rest has to wait.
        """
        for task in [task for task in self.backlog if task not in self.waiting]:
            if self.locks.wanted(task):
                self.waiting.add(task)
                group.create_task(self.wait_for(task))
            else:
                await self.attempt(task)

    async def wait_for(self, task: str) -> None:
        """See to a task once the change that is being made here is over."""
        try:
            with suppress(StoreUnavailable):  # the next turn meets it as well
                await self.attempt(task)
        finally:
            self.waiting.discard(task)

    async def attempt(self, task: str) -> None:
        """See to a task; where that fails, the next turn tries again and the others go on.

        Raises:
            StoreUnavailable: there is no point in trying others.
        """
        try:
            await self.settle(task)
        except StoreUnavailable:
            raise
        except Exception:
            if task not in self.failing:
                logger.exception("task_not_followed", task=task)
            self.failing.add(task)
        else:
            self.failing.discard(task)

    async def settle(self, task: str) -> None:
        """Have a task here be what it is in the store, unless it shows its changes already."""
        async with self.locks.hold(task, None):
            changes = self.backlog.pop(task)
            if changes is not None and all(map(self.catalogue.reflects, latest(changes))):
                return
            try:
                differed = await finish(self.reconciler.reconcile(task))
            except BaseException:
                self.backlog[task] = None
                raise
        if differed:
            self.observer.task_followed()
            self.observer.capsules_served(self.catalogue.current.served)


def latest(changes: Iterable[Change]) -> Iterable[Change]:
    """The last change of each version and each alias, of changes of one task in their order."""
    return {change.alias or change.version: change for change in changes}.values()


@asynccontextmanager
async def following(follower: Follower) -> AsyncIterator[None]:
    """Follow in the background; what is being done in the end is finished first."""
    task = asyncio.create_task(follower.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
