"""One change of a task at a time."""

import asyncio
from weakref import WeakValueDictionary


class TaskLocks:
    """A lock for each task, which is there as long as somebody holds or awaits it."""

    def __init__(self) -> None:
        self.locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, task: str) -> asyncio.Lock:
        """The task's lock, for use as ``async with locks.of(task):``."""
        lock = self.locks.get(task)
        if lock is None:
            lock = self.locks[task] = asyncio.Lock()
        return lock
