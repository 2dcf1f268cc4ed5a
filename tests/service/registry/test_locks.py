import asyncio

from service.registry.locks import TaskLocks


async def test_one_holder_per_task_and_nothing_left_behind() -> None:
    locks = TaskLocks()
    inside: dict[str, int] = {"a": 0, "b": 0}
    most = dict(inside)
    together = 0

    async def work(task: str) -> None:
        nonlocal together
        async with locks.of(task):
            inside[task] += 1
            most[task] = max(most[task], inside[task])
            together = max(together, sum(inside.values()))
            await asyncio.sleep(0.001)
            inside[task] -= 1

    await asyncio.gather(*(work(task) for task in "ab" * 10))
    assert most == {"a": 1, "b": 1}
    assert together == 2
    assert len(locks.locks) == 0


async def test_a_waiter_that_is_cancelled_leaves_the_lock_to_the_next() -> None:
    locks = TaskLocks()
    async with locks.of("a"):
        waiter = asyncio.create_task(locks.of("a").acquire())
        await asyncio.sleep(0)
        waiter.cancel()
        assert len(locks.locks) == 1
    async with asyncio.timeout(1), locks.of("a"):
        pass


async def test_a_lock_is_wanted_while_somebody_holds_or_awaits_it() -> None:
    locks = TaskLocks()

    async def wait() -> None:
        async with locks.hold("a", None):
            pass

    async with locks.hold("a", None):
        assert locks.wanted("a")
        assert not locks.wanted("b")
        waiter = asyncio.create_task(wait())
        await asyncio.sleep(0)
    # Released, and not yet taken by the one who is next.
    assert not locks.of("a").locked()
    assert locks.wanted("a")
    await waiter
    assert not locks.wanted("a")
