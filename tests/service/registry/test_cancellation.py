import asyncio
from typing import Any

import pytest

from service.registry.cancellation import finish


class Work:
    """Something that takes until it is released."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.release = asyncio.Event()
        self.done = False
        self.failure = failure

    async def run(self) -> str:
        await self.release.wait()
        self.done = True
        if self.failure is not None:
            raise self.failure
        return "result"


async def steps(count: int = 5) -> None:
    """Let every other task have its turn."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_gives_the_result() -> None:
    work = Work()
    work.release.set()
    undone: list[Any] = []
    assert await finish(work.run(), undo=undone.append) == "result"
    assert undone == []


async def test_passes_errors_on() -> None:
    work = Work(ValueError("no"))
    work.release.set()
    with pytest.raises(ValueError, match="no"):
        await finish(work.run())


async def test_a_cancelled_caller_waits_for_the_end() -> None:
    work = Work()
    undone: list[str] = []
    caller = asyncio.create_task(finish(work.run(), undo=undone.append))
    for _ in range(2):
        await steps()
        caller.cancel()
    await steps()
    assert not caller.done()
    work.release.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert work.done
    assert undone == ["result"]


async def test_a_cancelled_caller_undoes_nothing_that_failed() -> None:
    work = Work(ValueError("no"))
    undone: list[str] = []
    caller = asyncio.create_task(finish(work.run(), undo=undone.append))
    await steps()
    caller.cancel()
    work.release.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert work.done
    assert undone == []


async def test_a_timeout_is_still_a_timeout() -> None:
    work = Work()
    asyncio.get_running_loop().call_later(0.05, work.release.set)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001):
            await finish(work.run())
    assert work.done
