from pathlib import Path

import pytest
from sqlalchemy import update

from capsules.artefact.file import Capsule, digest, dump
from capsules.backbones.base import LoadedBackbone
from capsules.core import Example
from capsules.data.base import Dataset
from capsules.evaluation.runner import evaluate
from capsules.executors.torch import TorchExecutor
from service.jobs.ledger import DefaultMoved
from service.store.base import Store
from service.store.models import ArtefactRow
from service.store.sqlite import SqliteStore
from service.worker.activation import Standing
from service.worker.served import Yardstick
from tests.support.backbones import tiny_bert
from tests.support.capsules import random_capsule
from tests.support.datasets import separable

ROWS = separable(20, seed=5)


class Pulse:
    """Counts how often it was asked to heed."""

    def __init__(self) -> None:
        self.beats = 0

    def __call__(self) -> None:
        self.beats += 1


def yardstick(
    store: Store, loaded: LoadedBackbone, rows: Dataset = ROWS, heed: Pulse | None = None
) -> Yardstick:
    executor = TorchExecutor(loaded.backbone)
    return Yardstick(store, loaded, executor, rows, "accuracy", heed or Pulse())


def stored(store: Store, capsule: Capsule) -> int:
    data = dump(capsule)
    manifest = capsule.manifest
    record, _ = store.add_version(
        manifest.task, digest(data), manifest.model_dump(mode="json"), data, "upload"
    )
    return record.version


@pytest.fixture
def capsule(tiny: LoadedBackbone) -> Capsule:
    return random_capsule(tiny.info, labels=["yes", "no"])


def test_it_does_as_well_as_an_evaluation_says(
    store: SqliteStore, tiny: LoadedBackbone, capsule: Capsule
) -> None:
    version = stored(store, capsule)
    heed = Pulse()
    found = yardstick(store, tiny, heed=heed).measure(capsule.manifest.task, version)
    expected = evaluate(tiny, TorchExecutor(tiny.backbone), capsule, ROWS.examples)
    assert found == Standing(version, expected.accuracy)
    assert heed.beats > 0


def test_labels_are_compared_by_name(store: SqliteStore, tiny: LoadedBackbone) -> None:
    version = stored(store, random_capsule(tiny.info, labels=["other", "no"]))
    found = yardstick(store, tiny).measure("task", version)
    assert found.score is not None
    assert found.score <= 0.5


def test_it_is_measured_once(store: SqliteStore, tiny: LoadedBackbone, capsule: Capsule) -> None:
    version = stored(store, capsule)
    rod = yardstick(store, tiny)
    first = rod.measure(capsule.manifest.task, version)
    store.delete_task(capsule.manifest.task)
    assert rod.measure(capsule.manifest.task, version) is first


def test_one_of_another_backbone_cannot_run(
    store: SqliteStore, tiny: LoadedBackbone, tmp_path: Path
) -> None:
    other = tiny_bert(tmp_path / "other", seed=9)
    version = stored(store, random_capsule(other.info))
    found = yardstick(store, tiny).measure("task", version)
    assert found.score is None
    assert found.broken == "was trained on another backbone and cannot run on this one"


def test_a_damaged_one_cannot_run(
    store: SqliteStore, tiny: LoadedBackbone, capsule: Capsule
) -> None:
    version = stored(store, capsule)
    with store.writing() as session:
        session.execute(update(ArtefactRow).values(content=b"x"))
    found = yardstick(store, tiny).measure(capsule.manifest.task, version)
    assert found.broken == "is damaged and cannot run"


def test_one_that_takes_other_inputs_cannot_be_compared(
    store: SqliteStore, tiny: LoadedBackbone, capsule: Capsule
) -> None:
    changed = capsule.manifest.model_copy(update={"template": "{a} {b}"})
    version = stored(store, Capsule(manifest=changed, tensors=capsule.tensors))
    found = yardstick(store, tiny).measure(changed.task, version)
    assert (found.score, found.broken) == (None, None)
    assert found.incomparable == "takes the inputs a and b, which the rows lack"


def test_one_that_takes_fewer_inputs_is_compared_on_these(
    store: SqliteStore, tiny: LoadedBackbone, capsule: Capsule
) -> None:
    version = stored(store, capsule)
    wider = Dataset.of(
        [Example({**row.inputs, "more": "w1"}, row.label) for row in ROWS], labels=ROWS.labels
    )
    task = capsule.manifest.task
    assert yardstick(store, tiny, wider).measure(task, version) == yardstick(store, tiny).measure(
        task, version
    )


def test_one_that_cannot_answer_a_row_cannot_be_compared(
    store: SqliteStore, tiny: LoadedBackbone, capsule: Capsule
) -> None:
    version = stored(store, capsule)
    rows = Dataset.of([*ROWS, Example({"text": " ", "more": "w1"}, "no")], labels=ROWS.labels)
    found = yardstick(store, tiny, rows).measure(capsule.manifest.task, version)
    assert found.incomparable is not None
    assert found.incomparable.startswith("cannot answer one of the rows (The text is empty")


def test_one_that_was_deleted_meanwhile_is_decided_on_again(
    store: SqliteStore, tiny: LoadedBackbone, capsule: Capsule
) -> None:
    version = stored(store, capsule)
    with pytest.raises(DefaultMoved):
        yardstick(store, tiny).measure(capsule.manifest.task, version + 1)
    store.delete_task(capsule.manifest.task)
    with pytest.raises(DefaultMoved):
        yardstick(store, tiny).measure(capsule.manifest.task, version)
