"""The change log is followed turn by turn; time, and what the store answers, are the tests' own."""

import asyncio
from collections import Counter
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from service.errors import NotFound, Unavailable
from service.registry import follower as module
from service.registry.follower import Follower, following, latest
from service.registry.ports import SilentObserver
from service.registry.registry import Registry
from service.store import Store
from service.store.errors import StoreUnavailable
from tests.service.registry.samples import an_artefact, overwrite, put, put_trained, until
from tests.support.claimed import INFO
from tests.support.fake_engine import FakeEngine

INTERVAL_S = 1.0


class Counting:
    """Stands before a store, and counts and fails its calls."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.calls: Counter[str] = Counter()
        self.failures: dict[str, Exception] = {}

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.store, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls[name] += 1
            if name in self.failures:
                raise self.failures[name]
            return method(*args, **kwargs)

        return call


class Watcher(SilentObserver):
    """Counts the tasks that were followed."""

    def __init__(self) -> None:
        self.followed = 0
        self.served = -1

    def task_followed(self) -> None:
        self.followed += 1

    def capsules_served(self, count: int) -> None:
        self.served = count


class Setup:
    """A registry with a follower that moves when it is told to, and a clock to set."""

    def __init__(self, store: Store, engine: FakeEngine) -> None:
        self.others = store
        self.store = Counting(store)
        self.engine = engine
        self.watcher = Watcher()
        self.now = 100.0
        self.registry = Registry(cast(Store, self.store), engine, INFO, observer=self.watcher)

    async def load(self) -> None:
        await self.registry.load()
        self.follower = Follower(
            self.registry.reconciler,
            self.registry.locks,
            self.registry.position,
            self.watcher,
            interval_s=INTERVAL_S,
            clock=lambda: self.now,
        )
        self.store.calls.clear()

    async def turn(self) -> float:
        """One turn, and whatever it leaves waiting."""
        async with asyncio.TaskGroup() as group:
            return await self.follower.turn(group)

    def serves(self, reference: str) -> int | None:
        try:
            return self.registry.resolve(reference).version
        except NotFound:
            return None


@pytest.fixture
async def here(store: Store, engine: FakeEngine) -> Setup:
    """Version 1 of `trec` and of `sms`."""
    for task in ("trec", "sms"):
        put(store, an_artefact(task), task)
    setup = Setup(store, engine)
    await setup.load()
    return setup


class TestFollowing:
    async def test_brings_in_what_others_wrote(self, here: Setup) -> None:
        put(here.others, an_artefact(seed=1))
        put(here.others, an_artefact("new"), "new")
        here.others.set_alias("new", "prod", 1)
        here.others.delete_task("sms")
        put_trained(here.others, an_artefact(seed=2), held=True)
        assert (here.serves("trec"), here.serves("new"), here.serves("sms")) == (1, None, 1)
        assert await here.turn() == INTERVAL_S
        assert (here.serves("trec"), here.serves("new:prod"), here.serves("sms")) == (2, 1, None)
        assert here.serves("trec@3") == 3
        assert (here.watcher.followed, here.watcher.served) == (3, 4)

    async def test_reads_each_change_once(self, here: Setup) -> None:
        put(here.others, an_artefact(seed=1))
        await here.turn()
        here.store.calls.clear()
        for _ in range(3):
            assert await here.turn() == INTERVAL_S
        assert here.store.calls == {"changes_since": 3}
        assert here.watcher.followed == 1

    async def test_reads_nothing_for_what_was_changed_here(self, here: Setup) -> None:
        await here.registry.upload(an_artefact(seed=1))
        await here.registry.upload(an_artefact(seed=2))
        await here.registry.set_alias("trec", "prod", 1)
        await here.registry.set_alias("trec", "prod", 2)
        await here.registry.set_alias("trec", "canary", 1)
        await here.registry.delete_alias("trec", "canary")
        await here.registry.delete_version("trec", 3)
        await here.registry.delete_task("sms")
        before = here.registry.catalogue.current
        here.store.calls.clear()
        assert await here.turn() == INTERVAL_S
        assert here.store.calls == {"changes_since": 1}
        assert here.registry.catalogue.current is before
        assert here.watcher.followed == 0

    async def test_reads_nothing_for_a_burst_of_what_is_here(self, here: Setup) -> None:
        overwrite(
            here.others,
            "WITH RECURSIVE n(i) AS (SELECT 3 UNION ALL SELECT i + 1 FROM n WHERE i < 2600) "
            "INSERT INTO changes SELECT i, 'version_added', 'trec', 1, NULL, '2026-01-01' FROM n",
        )
        pauses = [await here.turn() for _ in range(3)]
        assert pauses == [0.0, 0.0, INTERVAL_S]
        assert here.store.calls == {"changes_since": 3}
        assert here.follower.position == here.others.head_sequence() == 2600

    async def test_goes_on_at_once_where_there_is_more(
        self, here: Setup, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "PAGE", 2)
        for seed in (1, 2, 3):
            put(here.others, an_artefact(seed=seed))
        assert (await here.turn(), await here.turn()) == (0.0, INTERVAL_S)
        assert here.serves("trec") == 4

    async def test_misses_nothing_that_is_written_while_the_store_is_loaded(
        self, store: Store, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put(store, an_artefact(seed=1))
        setup = Setup(store, engine)
        rows = store.iter_artefacts

        def overtaken() -> Any:
            yield from list(rows())
            put(store, an_artefact(seed=2))
            store.set_alias("trec", "prod", 2)

        with monkeypatch.context() as patch:
            patch.setattr(store, "iter_artefacts", overtaken)
            await setup.load()
        assert setup.serves("trec") == 1
        await setup.turn()
        assert setup.serves("trec:prod") == 2


def test_the_last_change_of_each_version_and_alias_counts(store: Store) -> None:
    put(store, an_artefact(seed=1))
    put(store, an_artefact(seed=2))
    store.set_alias("trec", "prod", 1)
    store.set_alias("trec", "prod", 2)
    store.delete_version("trec", 1)
    told = [(c.kind, c.version, c.alias) for c in latest(store.changes_since(0))]
    assert told == [
        ("version_deleted", 1, None),
        ("version_added", 2, None),
        ("alias_set", 2, "prod"),
    ]


class TestATaskThatIsBeingChangedHere:
    async def test_is_seen_to_afterwards_and_the_others_do_not_wait(self, here: Setup) -> None:
        here.engine.gate.clear()
        upload = asyncio.create_task(here.registry.upload(an_artefact(seed=7)))
        await until(lambda: here.engine.waiting == 1)
        put(here.others, an_artefact(seed=1))
        put(here.others, an_artefact("sms", seed=1), "sms")
        async with asyncio.TaskGroup() as group:
            here.now += 5
            assert await here.follower.turn(group) == INTERVAL_S
            assert (here.serves("sms"), here.serves("trec")) == (2, 1)
            assert here.follower.lag() == 5
            here.others.delete_version("trec", 1)
            await here.follower.turn(group)
            assert len(here.follower.waiting) == 1
            here.engine.gate.set()
            assert (await upload)[0].version == 3
        await here.turn()
        assert list(here.registry.catalogue.current.tasks["trec"].versions) == [2, 3]
        assert here.follower.lag() == 0
        assert not here.follower.waiting
        assert len(here.registry.locks.locks) == 0

    async def test_is_seen_to_again_where_the_store_fails_then(self, here: Setup) -> None:
        here.engine.gate.clear()
        upload = asyncio.create_task(here.registry.upload(an_artefact(seed=7)))
        await until(lambda: here.engine.waiting == 1)
        put(here.others, an_artefact(seed=1))
        async with asyncio.TaskGroup() as group:
            await here.follower.turn(group)
            here.store.failures["list_versions"] = StoreUnavailable("gone")
            here.engine.gate.set()
            await upload
        assert (here.serves("trec"), here.serves("trec@2")) == (3, None)
        assert here.follower.backlog.keys() == {"trec"}
        here.store.failures.clear()
        await here.turn()
        assert here.serves("trec@2") == 2


class TestALogThatWasPruned:
    async def test_is_made_up_for_by_a_look_at_everything(
        self, here: Setup, engine: FakeEngine
    ) -> None:
        kept = here.registry.resolve("trec@1")
        put(here.others, an_artefact(seed=1))
        here.others.delete_task("sms")
        put(here.others, an_artefact("new"), "new")
        here.others.prune(1)
        with capture_logs() as logs:
            assert await here.turn() == INTERVAL_S
        (lost,) = [line for line in logs if line["event"] == "changes_lost"]
        assert (lost["log_level"], lost["differing_tasks"]) == ("warning", 3)
        assert (here.serves("trec"), here.serves("sms"), here.serves("new")) == (2, None, 1)
        assert here.registry.resolve("trec@1") is kept
        here.store.calls.clear()
        await here.turn()
        assert here.store.calls == {"changes_since": 1}

    async def test_may_be_that_of_an_older_copy_of_the_database(self, here: Setup) -> None:
        put(here.others, an_artefact(seed=1))
        await here.turn()
        overwrite(here.others, "DELETE FROM changes WHERE sequence = 3")
        overwrite(here.others, "DELETE FROM versions WHERE task = 'trec' AND version = 2")
        await here.turn()
        assert (here.serves("trec"), here.follower.position) == (1, 2)

    async def test_takes_nothing_out_meanwhile_and_is_tried_again(self, here: Setup) -> None:
        put(here.others, an_artefact(seed=1))
        here.others.prune(1)
        put(here.others, an_artefact(seed=2))
        here.others.prune(1)
        here.store.failures["iter_artefacts"] = StoreUnavailable("gone")
        before = here.registry.catalogue.current
        await here.turn()
        assert here.registry.catalogue.current is before
        here.store.failures.clear()
        await here.turn()
        assert here.serves("trec") == 3

    async def test_does_not_hide_what_is_changed_here_meanwhile(
        self, here: Setup, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put(here.others, an_artefact("new"), "new")
        put(here.others, an_artefact("new", seed=1), "new")
        here.others.prune(1)
        survey = here.registry.reconciler.survey
        loop = asyncio.get_running_loop()

        def overtaken() -> list[str]:
            upload = here.registry.upload(an_artefact(seed=5))
            asyncio.run_coroutine_threadsafe(upload, loop).result(5)
            return survey()

        monkeypatch.setattr(here.registry.reconciler, "survey", overtaken)
        await here.turn()
        assert (here.serves("trec"), here.serves("new")) == (2, 2)


class TestTrouble:
    async def test_with_the_store_is_logged_once_and_ends(self, here: Setup) -> None:
        put(here.others, an_artefact(seed=1))
        here.store.failures["changes_since"] = StoreUnavailable("no route to the database")
        pauses = []
        with capture_logs() as logs:
            for _ in range(5):
                here.now += 1
                pauses.append(await here.turn())
            assert here.follower.lag() == 5
            here.store.failures.clear()
            pauses.append(await here.turn())
        assert pauses == [2.0, 4.0, 5.0, 5.0, 5.0, INTERVAL_S]
        behind, *followed, recovered = logs
        assert (behind["event"], behind["log_level"]) == ("follower_behind", "warning")
        assert behind["reason"] == "no route to the database"
        assert [line["event"] for line in followed] == ["task_followed"]
        assert (recovered["event"], recovered["behind_s"]) == ("follower_recovered", 5.0)
        assert here.serves("trec") == 2
        assert here.follower.lag() == 0

    async def test_in_the_middle_of_a_turn_leaves_the_rest_to_the_next(self, here: Setup) -> None:
        put(here.others, an_artefact(seed=1))
        put(here.others, an_artefact("sms", seed=1), "sms")
        here.store.failures["list_versions"] = StoreUnavailable("gone")
        assert await here.turn() == 2 * INTERVAL_S
        assert here.store.calls["list_versions"] == 1
        here.store.failures.clear()
        assert await here.turn() == INTERVAL_S
        assert (here.serves("trec"), here.serves("sms")) == (2, 2)

    async def test_with_one_task_is_told_once_and_holds_up_no_other(
        self, here: Setup, engine: FakeEngine
    ) -> None:
        put(here.others, an_artefact(seed=1))
        put(here.others, an_artefact("sms", seed=1), "sms")
        engine.bank.fail_next(MemoryError("no room"), None, MemoryError("no room"))
        with capture_logs() as logs:
            here.now += 1
            pauses = [await here.turn(), await here.turn()]
        assert pauses == [INTERVAL_S, INTERVAL_S]
        assert [line["event"] for line in logs] == ["task_not_followed", "task_followed"]
        assert (here.serves("trec"), here.serves("sms"), here.follower.lag()) == (1, 2, 1)
        await here.turn()
        assert (here.serves("trec"), here.follower.lag()) == (2, 0)

    async def test_that_nobody_foresaw_does_not_end_it(
        self, here: Setup, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        here.store.failures["changes_since"] = RuntimeError("a defect")
        with capture_logs() as logs:
            assert await here.turn() == 2 * INTERVAL_S
            await here.turn()
        (line,) = logs
        assert (line["event"], line["log_level"]) == ("follower_behind", "error")
        assert line["exc_info"]
        here.store.failures.clear()
        put(here.others, an_artefact(seed=1))
        assert await here.turn() == INTERVAL_S
        assert here.serves("trec") == 2


class TestRunning:
    async def test_follows_every_so_often_until_the_end(
        self, here: Setup, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pauses: list[float] = []

        async def sleep(seconds: float) -> None:
            pauses.append(seconds)
            await asyncio.sleep(0)

        here.follower.sleep = sleep
        async with following(here.follower):
            put(here.others, an_artefact(seed=1))
            await until(lambda: here.serves("trec") == 2)
            put(here.others, an_artefact(seed=2))
            await until(lambda: here.serves("trec") == 3)
        assert set(pauses) == {INTERVAL_S}
        turns = len(pauses)
        await asyncio.sleep(0.01)
        assert len(pauses) == turns

    async def test_finishes_what_it_is_at(
        self, here: Setup, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        loop, begun = asyncio.get_running_loop(), asyncio.Event()
        artefact = here.others.artefact

        def announced(task: str, version: int) -> bytes:
            loop.call_soon_threadsafe(begun.set)
            return artefact(task, version)

        monkeypatch.setattr(here.others, "artefact", announced)
        put(here.others, an_artefact(seed=1))
        async with following(here.follower):
            await begun.wait()
        assert here.serves("trec") == 2
        assert {served.version for served in here.engine.bank.resident} == {1, 2}

    async def test_gives_up_the_wait_for_a_change_that_is_made_here(self, here: Setup) -> None:
        put(here.others, an_artefact(seed=1))
        async with here.registry.locks.hold("trec", None):
            async with asyncio.timeout(5):
                async with following(here.follower):
                    await until(lambda: bool(here.follower.waiting))
        assert here.serves("trec") == 1

    async def test_needs_a_registry_that_is_loaded(self, store: Store, engine: FakeEngine) -> None:
        with pytest.raises(Unavailable):
            Registry(store, engine, INFO).follower()


class TestWhatCannotWait:
    """A client that was told of a version elsewhere may ask for it before the next turn."""

    async def test_is_followed_when_asked_for(self, here: Setup) -> None:
        put_trained(here.others, an_artefact(seed=1), held=True)
        await here.registry.refresh("trec", 2)
        assert here.serves("trec@2") == 2
        here.store.calls.clear()
        await here.registry.refresh("trec", 2)
        assert here.store.calls == {}
        await here.turn()
        assert here.store.calls == {"changes_since": 1}

    async def test_may_be_nowhere(self, here: Setup) -> None:
        before = here.registry.catalogue.current
        for task in ("trec", "new"):
            await here.registry.refresh(task, 9)
        assert here.registry.catalogue.current is before

    async def test_or_the_store_may_not_answer(self, here: Setup) -> None:
        here.store.failures["list_versions"] = StoreUnavailable("gone")
        with pytest.raises(Unavailable) as refused:
            await here.registry.refresh("trec", 9)
        assert refused.value.code == "store_unavailable"

    async def test_an_alias_can_be_set_to_it(self, here: Setup) -> None:
        put_trained(here.others, an_artefact(seed=1), held=True)
        await here.registry.set_alias("trec", "prod", 2)
        assert here.serves("trec") == 2
        assert here.watcher.served == 3

    async def test_bytes_that_others_deleted_are_uploaded_anew(self, here: Setup) -> None:
        here.others.delete_version("trec", 1)
        record, created = await here.registry.upload(an_artefact())
        assert (record.version, created) == (2, True)
        await here.turn()
        assert list(here.registry.catalogue.current.tasks["trec"].versions) == [2]
