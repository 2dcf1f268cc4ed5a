import pytest

from capsules.backbones.base import LoadedBackbone
from capsules.errors import TrainingError, TrainingFault
from service.jobs.ledger import ClaimVoid
from service.jobs.sql import SqlLedger
from service.store.sqlite import SqliteStore
from service.worker.trainer import Trainer, memory_told
from tests.service.worker.conftest import Begin
from tests.service.worker.samples import at_once


def test_all_jobs_share_one_backbone(
    ledger: SqlLedger, store: SqliteStore, tiny: LoadedBackbone, begin: Begin
) -> None:
    loads: list[int] = []

    def load() -> LoadedBackbone:
        loads.append(1)
        return tiny

    trainer = Trainer(ledger, store, load)
    for task in ("one", "other"):
        claim, job = begin(task=task, epochs=1)
        trainer.train(claim, job, at_once)
        assert ledger.get(job.id).status == "succeeded"
    assert loads == [1]


@pytest.mark.parametrize(
    "error",
    [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes")],
)
def test_a_lack_of_memory_names_what_to_change(error: Exception) -> None:
    with pytest.raises(TrainingError) as told, memory_told():
        raise error
    assert (told.value.code, told.value.field) == (TrainingFault.OUT_OF_MEMORY, "max_length")
    assert "CAPSULE_TRAIN_MEMORY" in told.value.message


@pytest.mark.parametrize("error", [RuntimeError("shapes differ"), ClaimVoid("gone"), KeyError("x")])
def test_other_errors_stay_what_they_are(error: Exception) -> None:
    with pytest.raises(type(error)) as told, memory_told():
        raise error
    assert told.value is error
