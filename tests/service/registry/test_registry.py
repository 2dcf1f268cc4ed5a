import asyncio
import hashlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from capsules.artefact.file import Capsule
from service.engine.records import Served
from service.errors import Conflict, NotFound, PreconditionFailed
from service.registry.registry import Registry
from service.store import Store
from tests.service.registry.samples import (
    a_capsule,
    an_artefact,
    ask,
    contents,
    damage,
    state,
    until,
)
from tests.support.claimed import INFO
from tests.support.fake_engine import FakeEngine, probabilities


class Watcher:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.counts: list[int] = []
        self.seconds: list[float] = []

    def capsules_served(self, count: int) -> None:
        self.counts.append(count)

    def load_finished(self, seconds: float) -> None:
        self.seconds.append(seconds)

    def task_followed(self) -> None:
        raise AssertionError("nobody followed")


class TestUpload:
    async def test_is_served_and_stored(self, registry: Registry, engine: FakeEngine) -> None:
        data = an_artefact("trec", labels=["a", "b", "c"])
        record, created = await registry.upload(data)
        assert created
        assert (record.task, record.version, record.source) == ("trec", 1, "upload")
        assert record.digest == hashlib.sha256(data).hexdigest()
        assert record.size == len(data)
        assert record.manifest["labels"] == ["a", "b", "c"]
        served = registry.resolve("trec")
        assert (served.task, served.version, served.digest) == ("trec", 1, record.digest)
        assert list(engine.bank.resident) == [served]
        assert await registry.artefact("trec", 1) == data

    async def test_a_copy_for_proof_is_made_only_where_there_is_something_to_prove(
        self, registry: Registry, engine: FakeEngine
    ) -> None:
        engine.bank.fail_next(None, MemoryError("for a second copy"))
        record, created = await registry.upload(an_artefact(golden=[]))
        assert (record.version, created) == (1, True)
        with pytest.raises(MemoryError):
            await registry.upload(an_artefact(seed=1))

    async def test_becomes_the_default(self, registry: Registry) -> None:
        await registry.upload(an_artefact(seed=1))
        record, _ = await registry.upload(an_artefact(seed=2))
        assert record.version == 2
        assert registry.resolve("trec").digest == record.digest
        assert registry.resolve("trec@1").version == 1

    async def test_same_bytes_again_change_nothing(
        self, registry: Registry, engine: FakeEngine
    ) -> None:
        first, _ = await registry.upload(an_artefact(seed=1))
        await registry.upload(an_artefact(seed=2))
        before = state(registry, engine)
        assert await registry.upload(an_artefact(seed=1)) == (first, False)
        assert state(registry, engine) == before
        assert registry.resolve("trec").version == 2

    async def test_same_bytes_at_once_are_one_version(
        self, registry: Registry, engine: FakeEngine
    ) -> None:
        results = await asyncio.gather(*(registry.upload(an_artefact()) for _ in range(8)))
        assert [created for _, created in results].count(True) == 1
        assert {record.version for record, _ in results} == {1}
        assert len(engine.bank.resident) == 1
        assert len(registry.store.changes_since(0)) == 1

    async def test_tasks_do_not_wait_for_each_other(
        self, registry: Registry, engine: FakeEngine
    ) -> None:
        engine.gate.clear()
        uploads = [asyncio.create_task(registry.upload(an_artefact(task))) for task in "abc"]
        second = asyncio.create_task(registry.upload(an_artefact("a", seed=2)))
        await until(lambda: engine.waiting == 3)
        assert list(registry.catalogue.current.names) == []
        engine.gate.set()
        results = await asyncio.gather(*uploads, second)
        assert sorted((record.task, record.version) for record, _ in results) == [
            ("a", 1),
            ("a", 2),
            ("b", 1),
            ("c", 1),
        ]

    async def test_is_not_seen_before_it_is_proven(
        self, registry: Registry, engine: FakeEngine
    ) -> None:
        engine.gate.clear()
        upload = asyncio.create_task(registry.upload(an_artefact()))
        await until(lambda: engine.waiting == 1)
        with pytest.raises(NotFound):
            registry.resolve("trec")
        assert contents(registry.store) == [[], [], []]
        engine.gate.set()
        await upload
        assert registry.resolve("trec").version == 1

    async def test_needs_no_golden_examples(self, registry: Registry) -> None:
        _, created = await registry.upload(an_artefact(golden=[]))
        assert created

    async def test_adopts_what_another_process_stored(
        self, registry: Registry, engine: FakeEngine
    ) -> None:
        other = Registry(registry.store, FakeEngine(), INFO)
        await other.load()
        await other.upload(an_artefact(seed=1))
        theirs, _ = await other.upload(an_artefact(seed=2))
        assert await registry.upload(an_artefact(seed=2)) == (theirs, False)
        assert registry.resolve("trec").version == 2
        assert len(engine.bank.resident) == 1

    async def test_leaves_no_lock_behind(self, registry: Registry) -> None:
        await registry.upload(an_artefact())
        assert len(registry.locks.locks) == 0


class TestCancelledUpload:
    async def test_during_the_proof_leaves_no_trace(
        self, registry: Registry, engine: FakeEngine
    ) -> None:
        before = state(registry, engine)
        engine.gate.clear()
        upload = asyncio.create_task(registry.upload(an_artefact()))
        await until(lambda: engine.waiting == 1)
        assert len(engine.bank.resident) == 1
        upload.cancel()
        with pytest.raises(asyncio.CancelledError):
            await upload
        assert state(registry, engine) == before
        engine.gate.set()
        _, created = await registry.upload(an_artefact())
        assert created

    @pytest.mark.parametrize("steps", range(0, 60, 7))
    async def test_at_any_moment_keeps_store_and_catalogue_in_step(
        self, registry: Registry, engine: FakeEngine, steps: int
    ) -> None:
        upload = asyncio.create_task(registry.upload(an_artefact()))
        for _ in range(steps):
            await asyncio.sleep(0.0002)
        upload.cancel()
        await asyncio.gather(upload, return_exceptions=True)
        stored = [record.version for record, _ in registry.store.iter_artefacts()]
        catalogue = registry.catalogue.current.tasks
        assert stored == (list(catalogue["trec"].versions) if catalogue else [])
        assert [served.version for served in engine.bank.resident] == stored
        assert (await registry.upload(an_artefact()))[0].version == 1

    async def test_while_it_enters_the_bank_takes_it_out_again(
        self, registry: Registry, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        begun, go_on, add = threading.Event(), threading.Event(), engine.bank.add

        def slow(capsule: Capsule, *, version: int, digest: str) -> Served:
            begun.set()
            assert go_on.wait(5)
            return add(capsule, version=version, digest=digest)

        monkeypatch.setattr(engine.bank, "add", slow)
        upload = asyncio.create_task(registry.upload(an_artefact()))
        await until(begun.is_set)
        upload.cancel()
        await asyncio.sleep(0.01)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await upload
        assert engine.bank.resident == {}
        assert contents(registry.store) == [[], [], []]

    async def test_while_waiting_for_another_leaves_that_one_alone(
        self, registry: Registry, engine: FakeEngine
    ) -> None:
        engine.gate.clear()
        first = asyncio.create_task(registry.upload(an_artefact(seed=1)))
        await until(lambda: engine.waiting == 1)
        second = asyncio.create_task(registry.upload(an_artefact(seed=2)))
        await asyncio.sleep(0.02)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        engine.gate.set()
        assert (await first)[1]
        assert len(engine.bank.resident) == 1


CHANGES: dict[str, Callable[[Registry], Coroutine[Any, Any, Any]]] = {
    "add_version": lambda registry: registry.upload(an_artefact(seed=3)),
    "delete_version": lambda registry: registry.delete_version("trec", 2),
    "delete_task": lambda registry: registry.delete_task("trec"),
    "set_alias": lambda registry: registry.set_alias("trec", "prod", 2),
    "delete_alias": lambda registry: registry.delete_alias("trec", "prod"),
}


@pytest.mark.parametrize("method", CHANGES)
async def test_a_change_that_is_cancelled_while_the_store_works_is_finished(
    registry: Registry, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    for seed in (1, 2):
        await registry.upload(an_artefact(seed=seed))
    await registry.set_alias("trec", "prod", 1)
    before = registry.catalogue.current
    loop, begun = asyncio.get_running_loop(), asyncio.Event()
    original = getattr(registry.store, method)

    def announced(*args: Any) -> Any:
        loop.call_soon_threadsafe(begun.set)
        return original(*args)

    monkeypatch.setattr(registry.store, method, announced)
    change = asyncio.create_task(CHANGES[method](registry))
    await begun.wait()
    change.cancel()
    with pytest.raises(asyncio.CancelledError):
        await change
    assert registry.catalogue.current != before
    again = Registry(registry.store, FakeEngine(), INFO)
    await again.load()
    assert await registry.list_tasks() == await again.list_tasks()
    assert registry.served == again.served == len(engine.bank.resident)


class TestDelete:
    async def test_the_newest_rolls_back(self, registry: Registry, engine: FakeEngine) -> None:
        await registry.upload(an_artefact(seed=1))
        await registry.upload(an_artefact(seed=2))
        removal = await registry.delete_version("trec", 2)
        assert (removal.versions, removal.aliases) == ((2,), ())
        assert registry.resolve("trec").version == 1
        assert [served.version for served in engine.bank.resident] == [1]
        record, _ = await registry.upload(an_artefact(seed=3))
        assert record.version == 3

    async def test_takes_the_aliases_along_and_says_so(self, registry: Registry) -> None:
        for seed in (1, 2, 3):
            await registry.upload(an_artefact(seed=seed))
        await registry.set_alias("trec", "prod", 1)
        await registry.set_alias("trec", "canary", 2)
        assert registry.resolve("trec").version == 1
        removal = await registry.delete_version("trec", 1)
        assert [alias.alias for alias in removal.aliases] == ["prod"]
        assert registry.resolve("trec").version == 3
        assert registry.resolve("trec:canary").version == 2

    async def test_the_whole_task(self, registry: Registry, engine: FakeEngine) -> None:
        await registry.upload(an_artefact("other"))
        for seed in (1, 2):
            await registry.upload(an_artefact(seed=seed))
        removal = await registry.delete_task("trec")
        assert removal.versions == (1, 2)
        with pytest.raises(NotFound):
            registry.resolve("trec")
        assert [served.task for served in engine.bank.resident] == ["other"]

    async def test_a_row_in_flight_finishes_on_its_version(
        self, registry: Registry, engine: FakeEngine
    ) -> None:
        await registry.upload(an_artefact())
        served = registry.resolve("trec")
        engine.gate.clear()
        row = asyncio.create_task(ask(engine, served))
        await until(lambda: engine.waiting == 1)
        await registry.delete_version("trec", 1)
        engine.gate.set()
        assert await row == probabilities(a_capsule())

    async def test_a_row_resolved_too_long_ago_is_refused_alone(
        self, registry: Registry, engine: FakeEngine
    ) -> None:
        await registry.upload(an_artefact())
        served = registry.resolve("trec")
        await registry.delete_version("trec", 1)
        with pytest.raises(NotFound) as missing:
            await ask(engine, served)
        assert missing.value.code == "version_not_found"

    async def test_what_another_process_deleted_is_not_served_any_longer(
        self, registry: Registry, engine: FakeEngine
    ) -> None:
        for seed in (1, 2):
            await registry.upload(an_artefact(seed=seed))
        registry.store.delete_version("trec", 2)
        with pytest.raises(NotFound) as missing:
            await registry.delete_version("trec", 2)
        assert missing.value.code == "version_not_found"
        assert registry.resolve("trec").version == 1
        registry.store.delete_task("trec")
        with pytest.raises(NotFound) as missing:
            await registry.delete_version("trec", 1)
        assert missing.value.code == "task_not_found"
        assert engine.bank.resident == {}
        assert registry.served == 0


class TestAlias:
    async def test_moves_with_its_revision(self, registry: Registry) -> None:
        for seed in (1, 2):
            await registry.upload(an_artefact(seed=seed))
        first, created = await registry.set_alias("trec", "prod", 1, if_match=0)
        assert created
        assert registry.resolve("trec:prod").version == 1
        second, created = await registry.set_alias("trec", "prod", 2, if_match=first.revision)
        assert not created
        assert second.revision > first.revision
        with pytest.raises(PreconditionFailed) as stale:
            await registry.set_alias("trec", "prod", 1, if_match=first.revision)
        assert stale.value.code == "alias_conflict"
        assert registry.resolve("trec").version == 2
        with pytest.raises(PreconditionFailed):
            await registry.delete_alias("trec", "prod", if_match=first.revision)
        assert await registry.delete_alias("trec", "prod", if_match=second.revision) == second
        with pytest.raises(NotFound, match="alias"):
            registry.resolve("trec:prod")

    async def test_concurrent_moves_have_one_winner(self, registry: Registry) -> None:
        for seed in (1, 2):
            await registry.upload(an_artefact(seed=seed))
        start, _ = await registry.set_alias("trec", "prod", 1)
        moves = [registry.set_alias("trec", "prod", 2, start.revision) for _ in range(4)]
        results = await asyncio.gather(*moves, return_exceptions=True)
        assert sum(isinstance(result, tuple) for result in results) == 1
        assert sum(isinstance(result, PreconditionFailed) for result in results) == 3

    async def test_does_not_point_at_what_cannot_be_served(self, store: Store) -> None:
        home = Registry(store, FakeEngine(), INFO)
        await home.load()
        for seed in (1, 2):
            await home.upload(an_artefact(seed=seed))
        damage(store, "version = 1")
        registry = Registry(store, FakeEngine(), INFO)
        await registry.load()
        with pytest.raises(Conflict) as refused:
            await registry.set_alias("trec", "prod", 1)
        assert refused.value.code == "version_not_servable"
        assert store.list_aliases() == []


async def test_tells_its_observer(store: Store) -> None:
    watcher = Watcher()
    registry = Registry(store, FakeEngine(), INFO, observer=watcher)
    await registry.load()
    await registry.upload(an_artefact(seed=1))
    await registry.upload(an_artefact(seed=2))
    await registry.delete_version("trec", 1)
    assert watcher.counts == [0, 1, 2, 1]
    (seconds,) = watcher.seconds
    assert 0 < seconds < 10
