import asyncio
import threading
from collections.abc import Callable

import pytest

from service.errors import Unavailable
from service.registry.lanes import Lane, held

PATIENCE_S = 0.05


class Work:
    """Blocks each thread that calls it until it may go on."""

    def __init__(self) -> None:
        self.calls = 0
        self.go = threading.Event()

    def __call__(self, result: str = "done") -> str:
        self.calls += 1
        assert self.go.wait(10)
        return result


def soon() -> float:
    return asyncio.get_running_loop().time() + PATIENCE_S


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - a thread has no event of the loop's
            await asyncio.sleep(0.001)


async def test_as_many_run_at_a_time_as_there_are_threads() -> None:
    lane, work = Lane("test", 2), Work()
    running = [asyncio.create_task(lane.run(None, work, str(n))) for n in range(5)]
    await until(lambda: work.calls == 2)
    await asyncio.sleep(PATIENCE_S)
    assert work.calls == 2
    work.go.set()
    assert await asyncio.gather(*running) == list("01234")


async def test_a_full_lane_is_waited_for_until_a_moment_and_not_called_after_it() -> None:
    lane, work = Lane("test", 1), Work()
    first = asyncio.create_task(lane.run(None, work))
    await until(lambda: work.calls == 1)
    with pytest.raises(Unavailable) as refused:
        await lane.run(soon(), work)
    assert (refused.value.code, refused.value.status) == ("busy", 503)
    assert refused.value.retry_after
    work.go.set()
    assert await first == "done"
    assert work.calls == 1
    assert await lane.run(soon(), work) == "done"


async def test_a_lane_that_is_free_takes_a_call_whose_time_is_up() -> None:
    lane, work = Lane("test", 1), Work()
    work.go.set()
    assert await lane.run(soon() - 10, work) == "done"


async def test_what_has_begun_is_waited_for_before_another_begins() -> None:
    lane, work = Lane("test", 1), Work()
    first = asyncio.create_task(lane.run(None, work))
    await until(lambda: work.calls == 1)
    first.cancel()
    second = asyncio.create_task(lane.run(None, work))
    await asyncio.sleep(PATIENCE_S)
    assert not first.done()
    assert work.calls == 1
    work.go.set()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await second == "done"


async def test_errors_come_through_and_free_the_lane() -> None:
    lane = Lane("test", 1)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            await lane.run(soon(), divmod, 1, 0)


async def test_a_closed_lane_takes_nothing() -> None:
    lane = Lane("test", 1)
    lane.close()
    with pytest.raises(RuntimeError):
        await lane.run(None, Work())


async def test_what_is_held_is_given_back() -> None:
    lock = asyncio.Lock()

    async def fail() -> None:
        async with held(lock, None):
            assert lock.locked()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert not lock.locked()
