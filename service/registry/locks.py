"""One change of a task at a time."""

import asyncio
from contextlib import AbstractAsyncContextManager
from weakref import WeakValueDictionary

from service.registry.lanes import held


class TaskLocks:
    """A lock for each task, which is there as long as somebody holds or awaits it."""

    def __init__(self) -> None:
        self.locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def hold(self, task: str, until: float | None) -> AbstractAsyncContextManager[None]:
        """Hold a task's lock, for use as ``async with locks.hold(task, until):``; see `held`.

        Args:
            task: the task's name.
            until: when to give up the wait for it, on the event loop's clock; None never.
        """
        return held(self.of(task), until)

    def wanted(self, task: str) -> bool:
        """Whether somebody holds or awaits a task's lock."""
        return task in self.locks

    def of(self, task: str) -> asyncio.Lock:
        """The task's lock."""
        lock = self.locks.get(task)
        if lock is None:
            lock = self.locks[task] = asyncio.Lock()
        return lock
