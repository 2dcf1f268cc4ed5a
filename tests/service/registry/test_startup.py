import asyncio
import hashlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from capsules.errors import ArtefactFault
from service.errors import Conflict, InternalError, NotFound, Unavailable
from service.registry import startup
from service.registry.registry import Registry
from service.store import Store
from service.store.base import VersionRecord
from service.store.errors import StoreUnavailable
from tests.service.registry.faulty import FAULTY
from tests.service.registry.samples import (
    OTHER_FINGERPRINT,
    a_capsule,
    an_artefact,
    ask,
    damage,
    overwrite,
    until,
)
from tests.support.claimed import INFO
from tests.support.fake_engine import FakeEngine, probabilities


def put(store: Store, task: str, data: bytes, manifest: dict[str, Any] | None = None) -> None:
    """Store bytes as they are, as another release or another backbone's server may have."""
    keys = {"labels": ["no", "yes"], "description": "stored"} if manifest is None else manifest
    store.add_version(task, digest_of(data), keys, data, "upload")


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def reopened(store: Store) -> tuple[Registry, FakeEngine]:
    engine = FakeEngine()
    return Registry(store, engine, INFO), engine


async def test_everything_is_served_again(registry: Registry, store: Store) -> None:
    for task in "ab":
        for seed in (1, 2):
            await registry.upload(an_artefact(task, seed))
    await registry.set_alias("a", "prod", 1)
    await registry.delete_version("b", 1)
    again, engine = reopened(store)
    report = await again.load()
    assert (report.served, report.foreign, report.unusable) == (3, 0, 0)
    assert again.served == len(engine.bank.resident) == 3
    assert {
        reference: (again.resolve(reference).task, again.resolve(reference).version)
        for reference in ("a", "a@2", "a:prod", "b")
    } == {"a": ("a", 1), "a@2": ("a", 2), "a:prod": ("a", 1), "b": ("b", 2)}
    assert await ask(engine, again.resolve("b")) == probabilities(a_capsule("b", 2))
    assert again.catalogue.current.names == ("a", "b")
    before = {task: await registry.describe(task) for task in "ab"}
    assert {task: await again.describe(task) for task in "ab"} == before


async def test_room_is_made_for_everything_before(registry: Registry, store: Store) -> None:
    sizes = [(await registry.upload(an_artefact(task, 1)))[0].size for task in "ab"]
    again, engine = reopened(store)
    await again.load()
    assert engine.bank.expected == [(2, sum(sizes))]


async def test_nothing_is_answered_before(store: Store) -> None:
    registry, _ = reopened(store)
    with pytest.raises(Unavailable) as refused:
        registry.resolve("trec")
    assert refused.value.code == "warming"
    assert refused.value.retry_after
    for call in (
        registry.upload(an_artefact()),
        registry.delete_version("trec", 1),
        registry.delete_task("trec"),
        registry.set_alias("trec", "prod", 1),
        registry.delete_alias("trec", "prod"),
        registry.list_tasks(),
        registry.describe("trec"),
        registry.version("trec", 1),
        registry.artefact("trec", 1),
        registry.load_zoo([]),
    ):
        with pytest.raises(Unavailable):
            await call
    await registry.load()
    with pytest.raises(NotFound):
        registry.resolve("trec")


async def test_tells_its_progress_on_the_event_loop(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(startup, "PROGRESS_EVERY", 2)
    for seed in range(5):
        put(store, "trec", an_artefact(seed=seed))
    registry, _ = reopened(store)
    told: list[tuple[int, threading.Thread]] = []
    await registry.load(lambda count: told.append((count, threading.current_thread())))
    await asyncio.sleep(0)
    assert told == [(count, threading.current_thread()) for count in (2, 4, 5)]


class TestForeignVersions:
    async def test_are_kept_and_listed_but_not_served(self, store: Store) -> None:
        put(store, "trec", an_artefact(seed=1))
        put(store, "trec", an_artefact(seed=2, fingerprint=OTHER_FINGERPRINT))
        registry, engine = reopened(store)
        report = await registry.load()
        assert (report.served, report.foreign, report.unusable) == (1, 1, 0)
        with pytest.raises(Conflict) as refused:
            registry.resolve("trec@2")
        assert refused.value.code == "backbone_mismatch"
        assert "bbbbbbbbbbbb" in refused.value.detail
        assert [v.servable for v in (await registry.describe("trec")).versions] == [True, False]
        detail = await registry.version("trec", 2)
        assert not detail.servable
        assert await registry.artefact("trec", 2) == an_artefact(
            seed=2, fingerprint=OTHER_FINGERPRINT
        )
        assert len(engine.bank.resident) == 1

    async def test_are_counted_in_the_log_and_only_the_damaged_named(self, store: Store) -> None:
        for seed in (1, 2):
            put(store, "trec", an_artefact(seed=seed, fingerprint=OTHER_FINGERPRINT))
        put(store, "sms", an_artefact("sms"))
        damage(store, "task = 'sms'")
        registry, _ = reopened(store)
        with capture_logs() as logs:
            await registry.load()
        one, whole = logs
        assert (one["event"], one["log_level"]) == ("capsule_not_served", "error")
        assert (one["task"], one["version"]) == ("sms", 1)
        assert (whole["event"], whole["log_level"]) == ("capsules_loaded", "warning")
        assert (whole["served"], whole["foreign"], whole["unusable"]) == (0, 2, 1)

    async def test_can_be_deleted_and_superseded(self, store: Store) -> None:
        put(store, "trec", an_artefact(seed=1, fingerprint=OTHER_FINGERPRINT))
        registry, _ = reopened(store)
        await registry.load()
        summary = (await registry.list_tasks()).tasks[0]
        assert (summary.default_version, summary.servable) == (1, False)
        with pytest.raises(Conflict):
            await registry.set_alias("trec", "prod", 1)
        record, _ = await registry.upload(an_artefact(seed=2))
        assert registry.resolve("trec").version == record.version == 2
        await registry.delete_version("trec", 1)
        assert (await registry.describe("trec")).summary.versions == 1


class TestDamage:
    async def test_of_bytes_is_reported_and_skipped(self, store: Store) -> None:
        for task in "abc":
            put(store, task, an_artefact(task))
        damage(store, "task = 'b'")
        registry, engine = reopened(store)
        report = await registry.load()
        assert (report.served, report.foreign, report.unusable) == (2, 0, 1)
        with pytest.raises(Conflict, match=r"damaged.*Delete it, then upload") as refused:
            registry.resolve("b")
        assert refused.value.code == "version_not_servable"
        assert sorted(served.task for served in engine.bank.resident) == ["a", "c"]
        await registry.delete_version("b", 1)
        record, created = await registry.upload(an_artefact("b"))
        assert (record.version, created) == (2, True)
        assert registry.resolve("b").version == 2

    @pytest.mark.parametrize(
        "fault",
        [
            ArtefactFault.UNSUPPORTED_SCHEMA_VERSION,
            ArtefactFault.UNSUPPORTED_VARIANT,
            ArtefactFault.NOT_SAFETENSORS,
        ],
    )
    async def test_is_not_what_another_release_wrote(
        self, store: Store, fault: ArtefactFault
    ) -> None:
        put(store, "trec", FAULTY[fault](), manifest={})
        registry, _ = reopened(store)
        assert (await registry.load()).unusable == 1
        with pytest.raises(Conflict, match="cannot be read by this release"):
            registry.resolve("trec")
        detail = await registry.describe("trec")
        assert (detail.summary.labels, detail.summary.description) == (0, "")

    async def test_of_the_record_does_not_keep_the_capsule_from_being_served(
        self, store: Store
    ) -> None:
        put(store, "trec", an_artefact())
        overwrite(store, "UPDATE versions SET manifest = '[1]'")
        registry, _ = reopened(store)
        assert (await registry.load()).served == 1
        assert registry.resolve("trec").labels == ("no", "yes")
        assert (await registry.describe("trec")).summary.labels == 0

    @pytest.mark.parametrize(
        ("column", "value"),
        [
            ("manifest", "'{'"),
            ("manifest", "CAST(X'7BFF7D' AS TEXT)"),
            ("manifest", "X'7BFF7D'"),
            ("created_at", "'yesterday'"),
            ("created_at", "X'00'"),
            ("created_at", "5"),
            ("size", "'large'"),
            ("source", "'nobody'"),
        ],
    )
    async def test_of_one_record_is_reported_and_the_others_are_as_they_were(
        self, store: Store, column: str, value: str
    ) -> None:
        for task in "abc":
            put(store, task, an_artefact(task))
        overwrite(store, f"UPDATE versions SET {column} = {value} WHERE task = 'b'")
        registry, engine = reopened(store)
        with capture_logs() as logs:
            assert (await registry.load()).served == 3
        (line,) = [line for line in logs if line["event"] == "record_damaged"]
        assert (line["task"], line["version"], line["columns"]) == ("b", 1, (column,))
        assert await ask(engine, registry.resolve("b")) == probabilities(a_capsule("b"))
        assert await registry.artefact("b", 1) == an_artefact("b")
        assert [task.task for task in (await registry.list_tasks()).tasks] == ["a", "b", "c"]
        assert (await registry.version("c", 1)).record.manifest["labels"] == ["no", "yes"]
        with pytest.raises(InternalError, match="delete it, then upload") as damaged:
            await registry.version("b", 1)
        assert damaged.value.code == "artefact_damaged"
        await registry.delete_version("b", 1)
        record, created = await registry.upload(an_artefact("b"))
        assert (record.version, created) == (2, True)
        assert (await registry.version("b", 2)).record == record

    async def test_of_a_file_that_is_no_bytes_any_more(self, store: Store) -> None:
        for task in "ab":
            put(store, task, an_artefact(task))
        overwrite(store, "UPDATE artefacts SET content = 'text' WHERE task = 'b'")
        registry, _ = reopened(store)
        report = await registry.load()
        assert (report.served, report.unusable) == (1, 1)
        with pytest.raises(InternalError) as damaged:
            await registry.artefact("b", 1)
        assert damaged.value.code == "artefact_damaged"

    async def test_of_an_aliass_time_moves_no_alias(self, store: Store) -> None:
        for seed in (1, 2):
            put(store, "trec", an_artefact(seed=seed))
        store.set_alias("trec", "prod", 1)
        overwrite(store, "UPDATE aliases SET updated_at = 'yesterday'")
        registry, _ = reopened(store)
        await registry.load()
        assert registry.resolve("trec").version == 1
        (alias,) = (await registry.describe("trec")).summary.aliases
        assert (alias.alias, alias.version, alias.updated_at.year) == ("prod", 1, 1970)

    async def test_of_the_name_is_reported_and_skipped(self, store: Store) -> None:
        put(store, "trec", an_artefact("other"))
        registry, _ = reopened(store)
        assert (await registry.load()).unusable == 1
        with pytest.raises(Conflict, match="names 'other'"):
            registry.resolve("trec")


class TestFailure:
    async def test_of_the_store_leaves_the_bank_as_it_was(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for task in "abc":
            put(store, task, an_artefact(task))
        rows = store.iter_artefacts

        def failing() -> Iterator[tuple[VersionRecord, bytes]]:
            yield from list(rows())[:2]
            raise StoreUnavailable("the disk is gone")

        registry, engine = reopened(store)
        with monkeypatch.context() as patch:
            patch.setattr(store, "iter_artefacts", failing)
            with pytest.raises(Unavailable):
                await registry.load()
        assert engine.bank.resident == {}
        assert (await registry.load()).served == 3

    async def test_of_the_bank_is_not_the_capsules_fault(self, store: Store) -> None:
        for task in "abc":
            put(store, task, an_artefact(task))
        registry, engine = reopened(store)
        engine.bank.fail_next(None, MemoryError("no room"))
        with pytest.raises(MemoryError):
            await registry.load()
        assert engine.bank.resident == {}

    async def test_cancelled_stops_the_pass(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for task in "abc":
            put(store, task, an_artefact(task))
        rows = list(store.iter_artefacts())
        begun, go_on, read = threading.Event(), threading.Event(), []

        def slow() -> Iterator[tuple[VersionRecord, bytes]]:
            for record, data in rows:
                read.append(record.task)
                yield record, data
                begun.set()
                go_on.wait(5)

        monkeypatch.setattr(store, "iter_artefacts", slow)
        registry, engine = reopened(store)
        load = asyncio.create_task(registry.load())
        await until(begun.is_set)
        load.cancel()
        await asyncio.sleep(0.01)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await load
        assert read == ["a", "b"]
        assert engine.bank.resident == {}
        with pytest.raises(Unavailable):
            registry.resolve("a")


async def test_an_alias_set_while_loading_at_a_version_not_seen_is_left_out(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, "trec", an_artefact(seed=1))
    rows = store.iter_artefacts

    def overtaken() -> Iterator[tuple[VersionRecord, bytes]]:
        yield from list(rows())
        put(store, "trec", an_artefact(seed=2))
        store.set_alias("trec", "prod", 2)

    monkeypatch.setattr(store, "iter_artefacts", overtaken)
    registry, _ = reopened(store)
    await registry.load()
    assert registry.resolve("trec").version == 1
