import torch

from benchmarks.random_capsules import fill_bank, fill_store, random_capsules
from capsules.artefact.file import dump, parse
from capsules.backbones.load import load
from service.engine.bank import Bank
from service.store import open_store


def test_capsules_are_valid_and_take_the_label_counts_in_turn(backbone):
    info = load(backbone, device="cpu").info
    capsules = list(random_capsules(info, 5, (2, 7)))
    assert [len(capsule.manifest.labels) for capsule in capsules] == [2, 7, 2, 7, 2]
    assert len({capsule.manifest.task for capsule in capsules}) == 5
    for capsule in capsules:
        assert parse(dump(capsule)).manifest == capsule.manifest


def test_capsules_are_always_the_same_but_differ(backbone):
    info = load(backbone, device="cpu").info
    first, again = (list(random_capsules(info, 2, (2,))) for _ in range(2))
    assert dump(first[1]) == dump(again[1])
    assert not torch.equal(first[0].tensors["capsule"], first[1].tensors["capsule"])


def test_bank_holds_them(backbone):
    loaded = load(backbone, device="cpu")
    bank = Bank(loaded, torch.device("cpu"), slots=10)
    served = fill_bank(bank, random_capsules(loaded.info, 3))
    assert [one.task for one in served] == ["task-00000", "task-00001", "task-00002"]
    assert bank.stats().resident == 3


def test_store_holds_their_files(backbone, tmp_path):
    info = load(backbone, device="cpu").info
    sizes = fill_store(tmp_path, random_capsules(info, 3))
    store = open_store(tmp_path)
    try:
        kept = [len(data) for _, data in store.iter_artefacts()]
    finally:
        store.close()
    assert kept == sizes
