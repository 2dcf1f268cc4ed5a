"""One task is compared with the store, and made what it is there."""

from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from capsules.artefact.file import Capsule
from capsules.errors import ArtefactError, ArtefactFault
from service.engine.records import Served
from service.errors import Conflict
from service.registry.registry import Registry
from service.store import Store
from service.store.base import VersionRecord
from service.store.errors import NotFound, StoreUnavailable
from tests.service.registry.samples import (
    OTHER_FINGERPRINT,
    a_capsule,
    an_artefact,
    ask,
    damage,
    overwrite,
    put,
    put_trained,
)
from tests.support.claimed import INFO
from tests.support.fake_engine import FakeEngine, probabilities


def much(store: Store) -> None:
    put(store, an_artefact(seed=3))
    store.set_alias("trec", "prod", 3)
    store.delete_version("trec", 1)
    store.set_alias("trec", "old", 2)
    put(store, an_artefact(seed=1))


CHANGES: dict[str, Callable[[Store], object]] = {
    "a version": lambda store: put(store, an_artefact(seed=3)),
    "a held version": lambda store: put_trained(store, an_artefact(seed=3), held=True),
    "the newest deleted": lambda store: store.delete_version("trec", 2),
    "the target of an alias deleted": lambda store: store.delete_version("trec", 1),
    "the task deleted": lambda store: store.delete_task("trec"),
    "an alias": lambda store: store.set_alias("trec", "prod", 2),
    "an alias moved": lambda store: store.set_alias("trec", "old", 2),
    "an alias deleted": lambda store: store.delete_alias("trec", "old"),
    "a version held": lambda store: overwrite(
        store, "UPDATE versions SET held = 1 WHERE task = 'trec'"
    ),
    "much at once": much,
}


@pytest.fixture
async def registry(registry: Registry) -> Registry:
    """Versions 1 and 2 of `trec`, with the alias `old` at the first, and the task `sms`."""
    for seed in (1, 2):
        await registry.upload(an_artefact(seed=seed))
    await registry.set_alias("trec", "old", 1)
    await registry.upload(an_artefact("sms"))
    return registry


class Adds:
    """Counts what is copied into a bank."""

    def __init__(self, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.versions: list[int] = []
        self.original = engine.bank.add
        monkeypatch.setattr(engine.bank, "add", self.add)

    def add(self, capsule: Capsule, *, version: int, digest: str) -> Served:
        self.versions.append(version)
        return self.original(capsule, version=version, digest=digest)


async def reconciled(registry: Registry, task: str = "trec") -> bool:
    async with registry.locks.hold(task, None):
        return await registry.reconciler.reconcile(task)


async def assert_like_a_restart(registry: Registry, engine: FakeEngine) -> None:
    """A registry tells and holds what one would that has just read the store."""
    again = Registry(registry.store, FakeEngine(), INFO)
    await again.load()
    page = await registry.list_tasks()
    assert page == await again.list_tasks()
    for task in page.tasks:
        assert await registry.describe(task.task) == await again.describe(task.task)
    assert registry.served == again.served == len(engine.bank.resident)
    for served in engine.bank.resident:
        assert registry.resolve(f"{served.task}@{served.version}") is served


@pytest.mark.parametrize("name", CHANGES)
async def test_a_change_by_others_is_made_up_for_and_then_there_is_none(
    registry: Registry, engine: FakeEngine, name: str
) -> None:
    CHANGES[name](registry.store)
    assert registry.reconciler.survey() == ["trec"]
    assert await reconciled(registry)
    await assert_like_a_restart(registry, engine)
    before = registry.catalogue.current
    assert not await reconciled(registry)
    assert registry.catalogue.current is before
    assert registry.reconciler.survey() == []


async def test_what_is_here_is_not_loaded_again(
    registry: Registry, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = registry.resolve("trec@2")
    adds = Adds(engine, monkeypatch)
    read: list[int] = []
    artefact = registry.store.artefact

    def counted(task: str, version: int) -> bytes:
        read.append(version)
        return artefact(task, version)

    monkeypatch.setattr(registry.store, "artefact", counted)
    for task in ("trec", "sms", "unknown"):
        assert not await reconciled(registry, task)
    assert (adds.versions, read) == ([], [])
    much(registry.store)
    assert await reconciled(registry)
    assert (adds.versions, read) == ([3, 4], [3, 4])
    assert registry.resolve("trec@2") is second


async def test_a_task_of_others_comes_and_goes(registry: Registry, engine: FakeEngine) -> None:
    put(registry.store, an_artefact("new"), "new")
    with capture_logs() as logs:
        assert await reconciled(registry, "new")
    (line,) = logs
    assert (line["event"], line["task"], line["added"]) == ("task_followed", "new", [1])
    assert (line["removed"], line["serves"]) == ([], 1)
    assert await ask(engine, registry.resolve("new")) == probabilities(a_capsule("new"))
    registry.store.delete_task("new")
    with capture_logs() as logs:
        assert await reconciled(registry, "new")
    assert (logs[0]["removed"], logs[0]["serves"]) == ([1], None)
    assert not registry.knows("new")
    await assert_like_a_restart(registry, engine)


class TestWhatCannotBeServed:
    async def test_because_its_file_is_damaged_is_told_and_listed(
        self, registry: Registry, engine: FakeEngine
    ) -> None:
        put(registry.store, an_artefact(seed=3))
        put(registry.store, an_artefact(seed=4))
        damage(registry.store, "version = 4")
        with capture_logs() as logs:
            assert await reconciled(registry)
        refused, followed = logs
        assert (refused["event"], refused["log_level"]) == ("capsule_not_served", "error")
        assert (refused["task"], refused["version"]) == ("trec", 4)
        assert followed["added"] == [3, 4]
        assert registry.resolve("trec@3").version == 3
        with pytest.raises(Conflict, match="damaged") as conflict:
            registry.resolve("trec")
        assert conflict.value.code == "version_not_servable"
        with capture_logs() as logs:
            assert not await reconciled(registry)
        assert logs == []
        await assert_like_a_restart(registry, engine)

    async def test_because_it_is_another_backbones_is_listed_quietly(
        self, registry: Registry, engine: FakeEngine
    ) -> None:
        put(registry.store, an_artefact("new", fingerprint=OTHER_FINGERPRINT), "new")
        with capture_logs() as logs:
            assert await reconciled(registry, "new")
        assert [line["event"] for line in logs] == ["task_followed"]
        with pytest.raises(Conflict) as conflict:
            registry.resolve("new")
        assert conflict.value.code == "backbone_mismatch"
        await assert_like_a_restart(registry, engine)

    async def test_because_the_bank_does_not_take_it_is_told_and_listed(
        self, registry: Registry, engine: FakeEngine
    ) -> None:
        put(registry.store, an_artefact(seed=3))
        fault = ArtefactError("Two words are one.", code=ArtefactFault.INVALID_LABELS)
        engine.bank.fail_next(fault)
        with capture_logs() as logs:
            assert await reconciled(registry)
        assert logs[0]["event"] == "capsule_not_served"
        with pytest.raises(Conflict, match="Two words are one") as conflict:
            registry.resolve("trec")
        assert conflict.value.code == "version_not_servable"
        assert registry.resolve("trec@2").version == 2


async def test_a_record_that_has_decayed_does_not_keep_its_task_from_being_followed(
    registry: Registry, engine: FakeEngine
) -> None:
    put(registry.store, an_artefact(seed=3))
    overwrite(registry.store, "UPDATE versions SET manifest = '[1]' WHERE version = 3")
    assert registry.reconciler.survey() == ["trec"]
    with capture_logs() as logs:
        assert await reconciled(registry)
    assert [line["event"] for line in logs] == ["record_damaged", "task_followed"]
    assert registry.resolve("trec").version == 3
    registry.store.set_alias("trec", "prod", 1)
    with capture_logs() as logs:
        assert await reconciled(registry)
    assert [line["event"] for line in logs] == ["task_followed"]
    assert registry.resolve("trec").version == 1
    registry.store.delete_alias("trec", "prod")
    registry.store.delete_version("trec", 3)
    assert await reconciled(registry)
    await assert_like_a_restart(registry, engine)


async def test_a_number_that_a_restored_database_gives_out_again_is_another_version(
    registry: Registry, engine: FakeEngine
) -> None:
    first = registry.resolve("trec@2")
    overwrite(registry.store, "DELETE FROM versions WHERE version = 2")
    overwrite(registry.store, "UPDATE tasks SET last_version = 1 WHERE name = 'trec'")
    assert put(registry.store, an_artefact(seed=9)).version == 2
    assert registry.reconciler.survey() == ["trec"]
    assert await reconciled(registry)
    assert registry.resolve("trec@2") is not first
    assert await ask(engine, registry.resolve("trec")) == probabilities(a_capsule(seed=9))
    await assert_like_a_restart(registry, engine)


class TestFailure:
    async def test_of_the_bank_leaves_everything_as_it_was(
        self, registry: Registry, engine: FakeEngine
    ) -> None:
        much(registry.store)
        before = (registry.catalogue.current, dict(engine.bank.resident))
        engine.bank.fail_next(None, MemoryError("no room"))
        with pytest.raises(MemoryError):
            await reconciled(registry)
        assert (registry.catalogue.current, engine.bank.resident) == before
        assert await reconciled(registry)
        await assert_like_a_restart(registry, engine)

    async def test_of_the_store_leaves_everything_as_it_was(
        self, registry: Registry, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        much(registry.store)
        before = (registry.catalogue.current, dict(engine.bank.resident))
        artefact = registry.store.artefact

        def failing(task: str, version: int) -> bytes:
            if version == 4:
                raise StoreUnavailable("the disk is gone")
            return artefact(task, version)

        with monkeypatch.context() as patch:
            patch.setattr(registry.store, "artefact", failing)
            with pytest.raises(StoreUnavailable):
                await reconciled(registry)
        assert (registry.catalogue.current, engine.bank.resident) == before
        assert await reconciled(registry)
        await assert_like_a_restart(registry, engine)


class TestWhatHappensMeanwhile:
    """Between two reads of the store, others go on; it is followed the next time."""

    async def test_a_version_that_is_deleted_before_its_file_is_read(
        self, registry: Registry, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put(registry.store, an_artefact(seed=3))
        registry.store.set_alias("trec", "old", 3)
        artefact = registry.store.artefact

        def overtaken(task: str, version: int) -> bytes:
            registry.store.delete_version(task, version)
            return artefact(task, version)

        monkeypatch.setattr(registry.store, "artefact", overtaken)
        assert await reconciled(registry)
        await assert_like_a_restart(registry, engine)

    async def test_an_alias_that_is_set_at_a_version_not_seen(
        self, registry: Registry, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        versions = registry.store.list_versions

        def overtaken(task: str) -> list[VersionRecord]:
            seen = versions(task)
            put(registry.store, an_artefact(seed=3))
            registry.store.set_alias("trec", "prod", 3)
            return seen

        with monkeypatch.context() as patch:
            patch.setattr(registry.store, "list_versions", overtaken)
            assert not await reconciled(registry)
        assert registry.resolve("trec").version == 2
        assert await reconciled(registry)
        await assert_like_a_restart(registry, engine)

    async def test_a_task_that_is_deleted_before_its_aliases_are_read(
        self, registry: Registry, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        versions = registry.store.list_versions

        def overtaken(task: str) -> list[VersionRecord]:
            seen = versions(task)
            registry.store.delete_task(task)
            return seen

        monkeypatch.setattr(registry.store, "list_versions", overtaken)
        assert await reconciled(registry)
        with pytest.raises(NotFound):
            versions("trec")
        await assert_like_a_restart(registry, engine)


def test_a_survey_looks_at_everything(registry: Registry) -> None:
    store = registry.store
    put(store, an_artefact("new"), "new")
    store.set_alias("trec", "prod", 1)
    store.delete_task("sms")
    assert registry.reconciler.survey() == ["new", "sms", "trec"]
