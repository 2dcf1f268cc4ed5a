"""Building the zoo, on a tiny backbone and a tiny task."""

import gzip
from pathlib import Path

import pytest

from capsules.artefact.file import digest, read
from capsules.backbones.base import LoadedBackbone
from capsules.data.base import Dataset
from capsules.errors import DataError
from capsules.training.events import Silent
from capsules.zoo.build import Places, Result, build
from capsules.zoo.recipe import Recipe
from tests.support.backbones import tiny_bert
from tests.support.datasets import separable
from tests.support.rows import as_jsonl

RECIPE = Recipe("tiny", "Yes or no.", seeds=(3, 4))
SPLITS = {"train": 24, "validation": 12, "test": 10}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedBackbone:
    """Takes texts as long as the recipes allow."""
    return tiny_bert(tmp_path_factory.mktemp("long"), max_tokens=512)


def as_rows(dataset: Dataset) -> bytes:
    return as_jsonl([{**example.inputs, "label": example.label} for example in dataset])


@pytest.fixture
def places(tmp_path: Path) -> Places:
    folder = tmp_path / "data" / "tiny"
    folder.mkdir(parents=True)
    for split, rows in SPLITS.items():
        data = gzip.compress(as_rows(separable(rows, seed=rows)))
        (folder / f"{split}.jsonl.gz").write_bytes(data)
    names = ("data", "work", "results", "artefacts")
    return Places(*(tmp_path / name for name in names))


def test_a_capsule_and_its_result_are_written(loaded: LoadedBackbone, places: Places) -> None:
    result = build(loaded, RECIPE, 3, places, Silent())
    path = places.artefacts / "tiny.safetensors"
    assert Result.model_validate_json(places.result(RECIPE, 3).read_bytes()) == result
    assert (result.task, result.seed, result.labels) == ("tiny", 3, 2)
    assert result.rows == SPLITS
    assert (result.digest, result.bytes) == (digest(path.read_bytes()), path.stat().st_size)
    manifest = read(path).manifest
    assert (manifest.description, manifest.labels) == ("Yes or no.", ["no", "yes"])
    assert manifest.training is not None
    assert manifest.training.splits.model_dump() == SPLITS
    assert manifest.training.metrics["test_accuracy"] == result.capsule.test_accuracy


def test_the_first_seeds_capsule_ships(loaded: LoadedBackbone, places: Places) -> None:
    result = build(loaded, RECIPE, 4, places, Silent())
    assert places.result(RECIPE, 4).exists()
    assert 0 <= result.linear_head.test_accuracy <= 1
    assert not places.artefacts.exists()


class Stop(Exception):
    """Ends a build."""


class Stopping(Silent):
    """Ends a build in the first epoch of its second run, the capsule's."""

    def __init__(self) -> None:
        self.runs = 0

    def step(self, epoch: int, step: int, steps: int, loss: float) -> None:
        self.runs += (epoch, step) == (1, 1)
        if self.runs == 2 and epoch == 2:
            raise Stop


def test_a_build_that_was_stopped_goes_on_to_the_same_capsule(
    loaded: LoadedBackbone, places: Places, tmp_path: Path
) -> None:
    undisturbed = Places(places.data, *(tmp_path / f"other-{n}" for n in ("w", "r", "a")))
    build(loaded, RECIPE, 3, undisturbed, Silent())
    with pytest.raises(Stop):
        build(loaded, RECIPE, 3, places, Stopping())
    assert not places.results.exists()
    build(loaded, RECIPE, 3, places, Silent())
    one, other = (read(found.artefacts / "tiny.safetensors") for found in (undisturbed, places))
    for name, tensor in one.tensors.items():
        assert tensor.equal(other.tensors[name])
    assert one.manifest.golden == other.manifest.golden


def test_data_that_are_not_there(loaded: LoadedBackbone, places: Places) -> None:
    with pytest.raises(DataError):
        build(loaded, Recipe("absent", ""), 0, places, Silent())
