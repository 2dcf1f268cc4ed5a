"""Another process holds the database, or other requests are ahead: who waits, and for how long."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from service.errors import ServiceError, Unavailable, Unprocessable
from service.registry.lanes import EXAMINERS
from service.registry.registry import Registry
from service.registry.uploads import EXAMINED_AT_ONCE_BYTES
from service.store.base import VersionRecord
from service.store.open import DATABASE_NAME
from service.store.sqlite import SqliteStore
from tests.service.registry.samples import an_artefact, contents, until
from tests.support.claimed import INFO
from tests.support.fake_engine import FakeEngine

UPLOADS = 24
SHORT_S = 0.25


@contextmanager
def locked(folder: Path) -> Iterator[sqlite3.Connection]:
    """Hold the database as another process does that writes."""
    with closing(sqlite3.connect(folder / DATABASE_NAME)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield other


@contextmanager
def opened(folder: Path, patience_s: float) -> Iterator[SqliteStore]:
    with closing(SqliteStore(folder / DATABASE_NAME, patience_s=patience_s)) as store:
        yield store


async def loaded(store: SqliteStore, patience_s: float) -> tuple[Registry, FakeEngine]:
    engine = FakeEngine()
    registry = Registry(store, engine, INFO, patience_s=patience_s)
    await registry.load()
    await registry.upload(an_artefact("trec"))
    return registry, engine


def uploads(registry: Registry, *tasks: str) -> list[asyncio.Task[tuple[VersionRecord, bool]]]:
    return [asyncio.create_task(registry.upload(an_artefact(task, seed=1))) for task in tasks]


async def test_writers_that_wait_hold_nothing_else_up(data_dir: Path) -> None:
    with opened(data_dir, patience_s=30) as store:
        registry, engine = await loaded(store, patience_s=30)
        with locked(data_dir) as other:
            waiting = uploads(registry, *(f"task-{n}" for n in range(UPLOADS)))
            # All are proven and taken out again, so what is left to do is to store them.
            await until(
                lambda: registry.lanes.writing.free.locked() and len(engine.bank.resident) == 1
            )
            detail = await registry.version("trec", 1)
            assert (detail.record.task, detail.record.version) == ("trec", 1)
            assert await registry.artefact("trec", 1) == an_artefact("trec")
            with pytest.raises(Unprocessable) as refused:
                await registry.upload(b"garbage, and much of it")
            assert refused.value.code == "not_safetensors"
            again, created = await registry.upload(an_artefact("trec"))
            assert (again, created) == (detail.record, False)
            assert not any(task.done() for task in waiting)
            other.rollback()
            for record, created in await asyncio.gather(*waiting):
                assert (record.version, created) == (1, True)
        assert registry.served == UPLOADS + 1


async def test_nobody_waits_for_more_than_the_patience(data_dir: Path) -> None:
    with opened(data_dir, patience_s=SHORT_S) as store:
        registry, engine = await loaded(store, patience_s=4 * SHORT_S)
        before = (contents(store), dict(engine.bank.resident), registry.catalogue.current)
        with locked(data_dir):
            started = time.monotonic()
            results = await asyncio.gather(
                *uploads(registry, *(f"task-{n}" for n in range(UPLOADS))),
                registry.set_alias("trec", "prod", 1),
                registry.delete_task("trec"),
                return_exceptions=True,
            )
            seconds = time.monotonic() - started
        assert all(isinstance(result, Unavailable) for result in results), results
        codes = [result.code for result in results if isinstance(result, ServiceError)]
        assert set(codes) == {"store_unavailable", "busy"}
        # One after the other, they would take this.
        assert seconds < UPLOADS * SHORT_S
        assert before == (contents(store), dict(engine.bank.resident), registry.catalogue.current)
        assert (await registry.delete_task("trec")).versions == (1,)


async def test_changes_of_one_task_wait_no_longer_either(data_dir: Path) -> None:
    with opened(data_dir, patience_s=30) as store:
        registry, engine = await loaded(store, patience_s=SHORT_S)
        engine.gate.clear()
        (first,) = uploads(registry, "slow")
        await until(lambda: engine.waiting == 1)
        (second,) = uploads(registry, "slow")
        with pytest.raises(Unavailable) as refused:
            await second
        assert refused.value.code == "busy"
        with pytest.raises(Unavailable):
            await registry.delete_task("slow")
        assert not first.done()
        engine.gate.set()
        assert (await first)[1]


async def test_a_small_file_needs_no_thread_to_be_examined(data_dir: Path) -> None:
    go = threading.Event()
    with opened(data_dir, patience_s=30) as store:
        registry, _ = await loaded(store, patience_s=SHORT_S)
        examining = registry.lanes.examining
        busy = [asyncio.create_task(examining.run(None, go.wait, 30)) for _ in range(EXAMINERS)]
        await until(examining.free.locked)
        assert (await registry.upload(an_artefact("small")))[1]
        with pytest.raises(Unprocessable) as refused:
            await registry.upload(bytes(EXAMINED_AT_ONCE_BYTES))
        assert refused.value.code == "not_safetensors"
        with pytest.raises(Unavailable) as waited:
            await registry.upload(bytes(EXAMINED_AT_ONCE_BYTES + 1))
        assert waited.value.code == "busy"
        go.set()
        assert await asyncio.gather(*busy) == [True] * EXAMINERS


async def test_a_registry_can_be_closed(data_dir: Path) -> None:
    with opened(data_dir, patience_s=1) as store:
        registry, _ = await loaded(store, patience_s=1)
        registry.close()
        with pytest.raises(RuntimeError):
            await registry.version("trec", 1)
        assert store.get_version("trec", 1).task == "trec"
