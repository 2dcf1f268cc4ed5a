"""Versions that a training job left out of service: kept, reachable, and passed over."""

import pytest

from service.errors import Conflict
from service.registry.registry import Registry
from service.store import Store
from tests.service.registry.samples import JOB, an_artefact, contents, put, put_trained
from tests.support.claimed import INFO
from tests.support.fake_engine import FakeEngine


@pytest.fixture
async def registry(store: Store, engine: FakeEngine) -> Registry:
    """Version 1 of `trec` as uploaded, version 2 held; all versions of `sms` held."""
    put(store, an_artefact(seed=1))
    put_trained(store, an_artefact(seed=2), held=True, evaluation={"accuracy": 0.5})
    put_trained(store, an_artefact("sms"), "sms", held=True)
    registry = Registry(store, engine, INFO)
    await registry.load()
    return registry


async def test_are_passed_over_and_can_be_named(registry: Registry) -> None:
    assert registry.served == 3
    assert registry.resolve("trec").version == 1
    assert registry.resolve("trec@2").version == 2
    with pytest.raises(Conflict) as refused:
        registry.resolve("sms")
    assert refused.value.code == "no_served_version"
    assert registry.resolve("sms@1").task == "sms"


async def test_are_told_of(registry: Registry) -> None:
    sms, trec = (await registry.list_tasks()).tasks
    assert (sms.default_version, sms.servable, sms.description) == (None, False, "seed 0")
    assert (trec.default_version, trec.servable, trec.description) == (1, True, "seed 1")
    assert [v.held for v in (await registry.describe("trec")).versions] == [False, True]
    uploaded, trained = await registry.version("trec", 1), await registry.version("trec", 2)
    assert (trained.record.held, trained.record.job) == (True, JOB)
    assert (trained.record.source, trained.evaluation) == ("training", {"accuracy": 0.5})
    assert (uploaded.record.held, uploaded.record.job, uploaded.evaluation) == (False, None, None)


async def test_are_served_once_prod_points_at_them(registry: Registry) -> None:
    await registry.set_alias("sms", "prod", 1)
    assert registry.resolve("sms").version == 1
    await registry.set_alias("trec", "prod", 2)
    assert registry.resolve("trec").version == 2
    await registry.delete_alias("trec", "prod")
    assert registry.resolve("trec").version == 1


async def test_do_not_take_the_place_of_what_is_deleted(registry: Registry) -> None:
    record, _ = await registry.upload(an_artefact(seed=3))
    assert registry.resolve("trec").version == record.version == 3
    await registry.delete_version("trec", 3)
    assert registry.resolve("trec").version == 1
    await registry.delete_version("trec", 1)
    with pytest.raises(Conflict) as refused:
        registry.resolve("trec")
    assert refused.value.code == "no_served_version"


async def test_an_upload_of_the_same_bytes_leaves_them_held(
    registry: Registry, store: Store
) -> None:
    before = contents(store)
    record, created = await registry.upload(an_artefact(seed=2))
    assert (record.version, record.held, created) == (2, True, False)
    assert contents(store) == before
    assert registry.resolve("trec").version == 1
