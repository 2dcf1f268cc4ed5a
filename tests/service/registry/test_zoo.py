from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from service.errors import NotFound, Unavailable
from service.registry.registry import Registry
from service.registry.zoo import ZOO_MARK
from service.store import Store
from tests.service.registry.samples import OTHER_FINGERPRINT, an_artefact
from tests.support.claimed import INFO
from tests.support.fake_engine import FakeEngine


@pytest.fixture
def zoo(tmp_path: Path) -> Sequence[Path]:
    """Capsules for three tasks."""
    folder = tmp_path / "zoo"
    folder.mkdir()
    for task in ("sst2", "spam", "trec"):
        (folder / f"{task}.safetensors").write_bytes(an_artefact(task))
    return sorted(folder.iterdir())


async def started(store: Store, fingerprint: str = INFO.fingerprint) -> Registry:
    """A registry as the server's next start has it."""
    registry = Registry(store, FakeEngine(), replace(INFO, fingerprint=fingerprint))
    await registry.load()
    return registry


async def test_is_uploaded_on_the_first_start(store: Store, zoo: Sequence[Path]) -> None:
    registry = await started(store)
    report = await registry.load_zoo(zoo)
    assert (report.added, report.refused, report.complete) == (("spam", "sst2", "trec"), (), True)
    assert registry.resolve("trec").version == 1
    assert (await registry.version("trec", 1)).record.source == "zoo"
    assert await registry.artefact("trec", 1) == an_artefact("trec")


async def test_is_left_alone_on_the_second(store: Store, zoo: Sequence[Path]) -> None:
    await (await started(store)).load_zoo(zoo)
    registry = await started(store)
    head = store.head_sequence()
    assert (await registry.load_zoo(zoo)).added == ()
    assert store.head_sequence() == head
    assert registry.served == 3


async def test_a_deleted_capsule_stays_deleted(store: Store, zoo: Sequence[Path]) -> None:
    first = await started(store)
    await first.load_zoo(zoo)
    await first.delete_task("spam")
    registry = await started(store)
    await registry.load_zoo(zoo)
    with pytest.raises(NotFound):
        registry.resolve("spam")
    assert registry.served == 2


async def test_a_task_of_the_users_own_is_not_touched(store: Store, zoo: Sequence[Path]) -> None:
    registry = await started(store)
    own, _ = await registry.upload(an_artefact("trec", seed=9))
    report = await registry.load_zoo(zoo)
    assert (report.added, report.present) == (("spam", "sst2"), ("trec",))
    assert registry.resolve("trec").digest == own.digest
    assert (await registry.describe("trec")).summary.versions == 1


async def test_goes_on_where_it_was_interrupted(store: Store, zoo: Sequence[Path]) -> None:
    first = await started(store)
    await first.upload(zoo[0].read_bytes(), "zoo")
    first.engine.failure = Unavailable("stopped", code="engine_stopped")  # type: ignore[attr-defined]
    with pytest.raises(Unavailable):
        await first.load_zoo(zoo)
    assert store.marked(ZOO_MARK) is None
    registry = await started(store)
    report = await registry.load_zoo(zoo)
    assert (report.added, report.present) == (("sst2", "trec"), ("spam",))


async def test_waits_for_its_own_backbone(store: Store, zoo: Sequence[Path]) -> None:
    foreign = await started(store, fingerprint=OTHER_FINGERPRINT)
    report = await foreign.load_zoo(zoo)
    assert not report.complete
    assert {code for _, code in report.refused} == {"backbone_mismatch"}
    assert foreign.served == 0
    registry = await started(store)
    assert len((await registry.load_zoo(zoo)).added) == 3


async def test_a_bad_file_does_not_keep_the_others_out(store: Store, zoo: Sequence[Path]) -> None:
    zoo[1].write_bytes(zoo[1].read_bytes()[:-1])
    registry = await started(store)
    report = await registry.load_zoo(zoo)
    assert report.added == ("spam", "trec")
    assert report.refused == ((zoo[1].name, "artefact_truncated"),)
    assert report.complete


async def test_an_empty_zoo_stays_due(store: Store) -> None:
    registry = await started(store)
    assert not (await registry.load_zoo([])).complete
    assert store.marked(ZOO_MARK) is None
