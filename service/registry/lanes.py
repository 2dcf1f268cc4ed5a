"""Threads of their own for each kind of work, so that one kind that has to wait stops no other.

A locked database holds a writer up for seconds. Were it in one pool with readers and checks, a few
uploads would stop every listing and every refusal. Here each kind has its lane; a lane that is full
is waited for up to a moment that was fixed when the request arrived.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import ParamSpec, Protocol, TypeVar

from service.errors import Unavailable
from service.registry.cancellation import finish

P = ParamSpec("P")
T = TypeVar("T")

READERS = 4
EXAMINERS = 2
RETRY_AFTER_S = 5


class Turn(Protocol):
    """What is taken one after the other, or a few at a time."""

    async def acquire(self) -> object:
        """Wait for it."""
        ...

    def release(self) -> None:
        """Give it back."""
        ...


class Lane:
    """A few threads for one kind of work, in the order of arrival.

    Args:
        name: of the threads.
        threads: how many there are.
    """

    def __init__(self, name: str, threads: int) -> None:
        self.pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self.free = asyncio.Semaphore(threads)

    async def run(
        self, until: float | None, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call something in a thread; once it has begun, it is waited for whatever happens.

        Args:
            until: when to give up the wait for a thread, on the event loop's clock; None never.
            call: what to call.
            args: for it.
            kwargs: for it.

        Raises:
            Unavailable: `busy`; it was not called.
        """
        async with held(self.free, until):
            # Not by the loop's run_in_executor, which first looks into what it is given for
            # coroutines, at more than the cost of the rest.
            return await finish(asyncio.wrap_future(self.pool.submit(call, *args, **kwargs)))

    def close(self) -> None:
        """Let the threads end."""
        self.pool.shutdown(wait=False)


class Lanes:
    """The lanes of one registry.

    Attributes:
        reading: reads from the store.
        writing: writes to it; a store takes one writer at a time. What was written is copied to the
            bank by the same thread, which may wait there while the bank grows.
        examining: checks uploaded files.
        banking: copies capsules to where the model is, for which it may have to wait. A capsule
            that is stored is copied by the thread that stores it: to change threads costs more.
    """

    def __init__(self) -> None:
        self.reading = Lane("store-read", READERS)
        self.writing = Lane("store-write", 1)
        self.examining = Lane("examine", EXAMINERS)
        self.banking = Lane("bank", 1)

    def close(self) -> None:
        """Let all threads end."""
        for lane in (self.reading, self.writing, self.examining, self.banking):
            lane.close()


@asynccontextmanager
async def held(turn: Turn, until: float | None) -> AsyncIterator[None]:
    """Hold a lock or a place, which is waited for up to a moment on the event loop's clock.

    Raises:
        Unavailable: `busy`.
    """
    try:
        async with asyncio.timeout_at(until):
            await turn.acquire()
    except TimeoutError:
        raise Unavailable(
            "Other uploads or changes are ahead of this one and take too long; send the request "
            "again shortly.",
            code="busy",
            retry_after=RETRY_AFTER_S,
        ) from None
    try:
        yield
    finally:
        turn.release()
