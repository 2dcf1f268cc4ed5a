"""Two servers on one database: what one of them does, the other serves within a second."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from capsules.artefact.file import digest
from service.errors import ServiceError
from service.registry.follower import following
from service.registry.registry import Registry
from service.store import Store, open_store
from tests.service.registry.samples import a_capsule, an_artefact, ask, put_trained, until
from tests.support.claimed import INFO
from tests.support.fake_engine import FakeEngine, probabilities

WITHIN_S = 1.0
CALLS = 200
SEEDS = range(9)


@pytest.fixture
def other_store(data_dir: Path) -> Iterator[Store]:
    """The same database, as another process has it open."""
    with closing(open_store(data_dir)) as store:
        yield store


@pytest.fixture
async def one(registry: Registry) -> Registry:
    """The server where changes are made, with version 1 of `trec`."""
    await registry.upload(an_artefact(seed=0))
    return registry


@pytest.fixture
async def other(one: Registry, other_store: Store) -> Registry:
    """The server that is to follow."""
    registry = Registry(other_store, FakeEngine(), INFO)
    await registry.load()
    return registry


class Pace:
    """Follows for a registry, and sleeps between two looks at the log only as far as it is told.

    So what happens within a second is told by the seconds that it would have slept, however busy
    the machine is.
    """

    def __init__(self, registry: Registry) -> None:
        self.follower = registry.follower()
        self.follower.sleep = self.sleep
        self.asleep = asyncio.Event()
        self.over = asyncio.Event()
        self.seconds = 0.0

    async def sleep(self, seconds: float) -> None:
        self.seconds = seconds
        self.over.clear()
        self.asleep.set()
        await self.over.wait()

    async def step(self) -> float:
        """Have it look once, and give back how long it would have slept before."""
        await self.asleep.wait()
        seconds = self.seconds
        self.asleep.clear()
        self.over.set()
        await self.asleep.wait()
        await until(lambda: not self.follower.waiting)
        return seconds

    async def soon(self, condition: Callable[[], bool]) -> None:
        """Have it look until something is so, which has to be within a second."""
        passed = 0.0
        while not condition():
            passed += await self.step()
            assert passed < WITHIN_S


@pytest.fixture
async def pace(other: Registry) -> AsyncIterator[Pace]:
    pace = Pace(other)
    async with following(pace.follower):
        yield pace


def means(registry: Registry, reference: str) -> int | str:
    """The version that a reference means, or the code of the refusal."""
    try:
        return registry.resolve(reference).version
    except ServiceError as error:
        return error.code


class Client:
    """Classifies for ever, and checks every answer against the version that it names."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.expected = {
            digest(an_artefact(seed=seed)): probabilities(a_capsule(seed=seed)) for seed in SEEDS
        }
        self.calls = 0
        self.seen: set[int] = set()

    async def run(self) -> None:
        for reference in itertools.cycle(("trec", "trec@1")):
            served = self.registry.resolve(reference)
            assert await ask(self.registry.engine, served) == self.expected[served.digest]
            self.calls += 1
            self.seen.add(served.version)
            await asyncio.sleep(0.002)


async def test_every_change_is_served_within_a_second_and_no_call_fails(
    one: Registry, other: Registry, pace: Pace
) -> None:
    client = Client(other)
    classifying = asyncio.create_task(client.run())

    await one.upload(an_artefact(seed=1))
    await pace.soon(lambda: means(other, "trec") == 2)
    put_trained(one.store, an_artefact(seed=2), held=True)
    await pace.soon(lambda: means(other, "trec@3") == 3)
    assert means(other, "trec") == 2
    await one.refresh("trec", 3)
    await one.set_alias("trec", "prod", 3)
    await pace.soon(lambda: means(other, "trec") == 3)
    await one.set_alias("trec", "prod", 1)
    await pace.soon(lambda: means(other, "trec:prod") == 1)
    await one.delete_alias("trec", "prod")
    await pace.soon(lambda: means(other, "trec") == 2)
    await one.delete_version("trec", 2)
    await pace.soon(lambda: means(other, "trec") == 1)
    assert means(other, "trec@2") == "version_not_found"

    await until(lambda: client.calls >= CALLS or classifying.done())
    assert not classifying.done()
    classifying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await classifying
    assert client.seen == {1, 2, 3}
    await one.delete_task("trec")
    await pace.soon(lambda: means(other, "trec") == "task_not_found")
    assert other.served == 0


async def test_a_task_whose_versions_are_all_held_is_known_and_serves_none(
    one: Registry, other: Registry, pace: Pace
) -> None:
    put_trained(one.store, an_artefact("new"), "new", held=True)
    await pace.soon(lambda: means(other, "new") == "no_served_version")
    assert means(other, "new@1") == 1


async def test_both_may_change_the_same_task(one: Registry, other: Registry) -> None:
    followers = [one.follower(), other.follower()]
    for follower in followers:
        follower.sleep = lambda _: asyncio.sleep(0.001)
    async with following(followers[0]), following(followers[1]):
        for seed in SEEDS[1:]:
            await (one, other)[seed % 2].upload(an_artefact(seed=seed))
        results = await asyncio.gather(
            *(registry.upload(an_artefact(seed=99)) for registry in (one, other))
        )
        assert {record.version for record, _ in results} == {len(SEEDS) + 1}
        assert sorted(created for _, created in results) == [False, True]
        await one.delete_version("trec", 1)
        await other.set_alias("trec", "prod", 4)
        await until(
            lambda: (
                one.catalogue.current.tasks["trec"].summary()
                == other.catalogue.current.tasks["trec"].summary()
            )
        )
        assert means(one, "trec") == 4
        assert one.served == other.served == len(SEEDS)
