"""An upload that is refused says why, and nothing remembers it."""

from typing import Any

import pytest

from capsules.artefact.file import Capsule, digest
from capsules.errors import ArtefactError, ArtefactFault
from service.errors import (
    Conflict,
    InternalError,
    NotFound,
    PreconditionFailed,
    ServiceError,
    Unavailable,
    Unprocessable,
)
from service.registry.intake import Candidate
from service.registry.registry import Registry
from tests.service.registry.faulty import FAULTY
from tests.service.registry.samples import a_capsule, an_artefact, damage, state
from tests.support.claimed import INFO
from tests.support.fake_engine import FakeEngine


@pytest.fixture(params=["new task", "known task"])
async def occupied(request: pytest.FixtureRequest, registry: Registry) -> Registry:
    """A registry that knows another task, and perhaps the one of the faulty files."""
    await registry.upload(an_artefact("other"))
    if request.param == "known task":
        await registry.upload(an_artefact("trec", seed=7))
        await registry.set_alias("trec", "prod", 1)
    return registry


def test_every_fault_has_a_file() -> None:
    assert FAULTY.keys() == set(ArtefactFault)


@pytest.mark.parametrize("fault", FAULTY, ids=str)
async def test_a_faulty_file_leaves_no_trace(
    fault: ArtefactFault, occupied: Registry, engine: FakeEngine
) -> None:
    before = state(occupied, engine)
    with pytest.raises(Unprocessable) as refused:
        await occupied.upload(FAULTY[fault]())
    assert refused.value.code == fault
    assert refused.value.detail.endswith(".")
    assert state(occupied, engine) == before
    assert occupied.catalogue.current is before[-1]
    live = before[-1].tasks["trec"].versions if "trec" in before[-1].tasks else {}
    record, created = await occupied.upload(an_artefact("trec", seed=8))
    assert (record.version, created) == (len(live) + 1, True)


@pytest.mark.parametrize(
    "failure",
    [
        Unavailable("full", code="queue_full", retry_after=1),
        Unavailable("stopped", code="engine_stopped"),
        InternalError("broken", code="inference_failed"),
    ],
    ids=lambda failure: failure.code,
)
async def test_an_engine_that_fails_leaves_no_trace(
    failure: ServiceError, occupied: Registry, engine: FakeEngine
) -> None:
    before = state(occupied, engine)
    engine.failure = failure
    with pytest.raises(type(failure)) as raised:
        await occupied.upload(an_artefact())
    assert raised.value is failure
    assert state(occupied, engine) == before


async def test_a_bank_that_is_full_leaves_no_trace(occupied: Registry, engine: FakeEngine) -> None:
    before = state(occupied, engine)
    engine.bank.fail_next(MemoryError("no room for the candidate"))
    with pytest.raises(MemoryError):
        await occupied.upload(an_artefact())
    assert state(occupied, engine) == before


@pytest.mark.parametrize("golden", [None, []], ids=["golden examples", "none"])
async def test_words_that_the_bank_cannot_tell_apart_leave_no_trace(
    golden: list[dict[str, Any]] | None, occupied: Registry, engine: FakeEngine
) -> None:
    before = state(occupied, engine)
    capsule = a_capsule("trec", seed=9, golden=golden)
    words = {"verbalizers": {"no": "one", "yes": "one"}}
    data = an_artefact("trec", seed=9)
    candidate = Candidate(
        Capsule(capsule.manifest.model_copy(update=words), capsule.tensors), digest(data), data
    )
    engine.bank.fail_next(ArtefactError("Two words are one.", code=ArtefactFault.INVALID_LABELS))
    with pytest.raises(Unprocessable, match="Two words are one") as refused:
        await occupied.uploads.admit(candidate, "upload")
    assert refused.value.code == "invalid_labels"
    assert state(occupied, engine) == before


async def test_a_bank_that_fills_up_at_the_last_moment_takes_the_version_back(
    occupied: Registry, engine: FakeEngine
) -> None:
    stored, resident, snapshot = state(occupied, engine)
    engine.bank.fail_next(None, MemoryError("no room for the version"))
    with pytest.raises(MemoryError):
        await occupied.upload(an_artefact())
    after = state(occupied, engine)
    assert after[0][:2] == stored[:2]
    assert after[1:] == [resident, snapshot]


async def test_a_manifest_that_no_reply_can_tell_is_found_before_anything_is_stored(
    occupied: Registry, engine: FakeEngine
) -> None:
    before = state(occupied, engine)
    capsule = a_capsule("trec", seed=9)
    manifest = capsule.manifest.model_copy(update={"description": "half a pair: \ud800"})
    data = an_artefact("trec", seed=9)
    candidate = Candidate(Capsule(manifest, capsule.tensors), digest(data), data)
    with pytest.raises(UnicodeEncodeError):
        await occupied.uploads.admit(candidate, "upload")
    assert state(occupied, engine) == before


async def test_a_store_that_fails_leaves_no_trace(occupied: Registry, engine: FakeEngine) -> None:
    resident, snapshot = dict(engine.bank.resident), occupied.catalogue.current
    occupied.store.close()
    with pytest.raises(Unavailable) as raised:
        await occupied.upload(an_artefact())
    assert raised.value.code == "store_unavailable"
    for change in (
        occupied.delete_version("other", 1),
        occupied.delete_task("other"),
        occupied.set_alias("other", "prod", 1),
    ):
        with pytest.raises(Unavailable):
            await change
    assert engine.bank.resident == resident
    assert occupied.catalogue.current is snapshot


async def test_changes_that_are_refused_leave_no_trace(
    occupied: Registry, engine: FakeEngine
) -> None:
    await occupied.set_alias("other", "canary", 1)
    before = state(occupied, engine)
    for change, kind, code in [
        (occupied.delete_version("other", 2), NotFound, "version_not_found"),
        (occupied.delete_version("nothing", 1), NotFound, "task_not_found"),
        (occupied.delete_version("other", 10**30), NotFound, "version_not_found"),
        (occupied.delete_version("../x", 1), Unprocessable, "invalid_task_name"),
        (occupied.delete_task("nothing"), NotFound, "task_not_found"),
        (occupied.delete_task("NO"), Unprocessable, "invalid_task_name"),
        (occupied.set_alias("other", "prod", 2), NotFound, "version_not_found"),
        (occupied.set_alias("nothing", "prod", 1), NotFound, "task_not_found"),
        (occupied.set_alias("NO", "prod", 1), Unprocessable, "invalid_task_name"),
        (occupied.set_alias("other", "latest", 1), Unprocessable, "invalid_alias_name"),
        (occupied.set_alias("other", "canary", 1, 0), PreconditionFailed, "alias_conflict"),
        (occupied.delete_alias("other", "prod"), NotFound, "alias_not_found"),
        (occupied.delete_alias("nothing", "prod"), NotFound, "task_not_found"),
        (occupied.delete_alias("other", "NO"), Unprocessable, "invalid_alias_name"),
        (occupied.delete_alias("NO", "prod"), Unprocessable, "invalid_task_name"),
        (occupied.delete_alias("other", "canary", 999), PreconditionFailed, "alias_conflict"),
    ]:
        with pytest.raises(kind) as refused:
            await change
        assert refused.value.code == code
    assert state(occupied, engine) == before
    assert occupied.catalogue.current is before[-1]


async def test_bytes_whose_stored_copy_is_unusable_are_not_called_present(
    registry: Registry, engine: FakeEngine
) -> None:
    await registry.upload(an_artefact())
    damage(registry.store)
    again = Registry(registry.store, FakeEngine(), INFO)
    await again.load()
    with pytest.raises(Conflict, match="is damaged") as refused:
        await again.upload(an_artefact())
    assert refused.value.code == "version_not_servable"
