"""Shipped capsules answer held-back rows as well as their manifests say."""

import math
import os
from pathlib import Path

import pytest

from capsules.artefact.file import parse
from capsules.data.reader import load as load_dataset
from capsules.evaluation.runner import evaluate
from capsules.executors.torch import TorchExecutor
from capsules.zoo import artefacts
from capsules.zoo.recipe import RECIPES

DATA = Path(os.environ.get("CAPSULE_TEST_DATA", Path(__file__).parents[4] / "shared" / "data"))
ROWS = 200


def test_every_recipe_names_a_task_once():
    tasks = [recipe.task for recipe in RECIPES]
    assert sorted(set(tasks)) == sorted(tasks)


def test_every_shipped_capsule_has_a_recipe():
    shipped = {file.name.removesuffix(".safetensors") for file in artefacts()}
    assert shipped <= {recipe.task for recipe in RECIPES}
    assert shipped


@pytest.mark.parametrize("file", artefacts(), ids=lambda file: file.name)
def test_accuracy_on_test_rows_is_within_noise_of_the_manifest(file, embedded):
    capsule = parse(file.read_bytes())
    path = DATA / capsule.manifest.task / "test.jsonl.gz"
    if not path.exists():
        pytest.skip(f"{path} is not here; CAPSULE_TEST_DATA names the folder of the data sets")
    assert capsule.manifest.training is not None
    expected = capsule.manifest.training.metrics["test_accuracy"]
    rows = load_dataset(path, fields=["text"], labels=capsule.manifest.labels).examples
    sample = rows[:: max(1, len(rows) // ROWS)][:ROWS]
    report = evaluate(embedded, TorchExecutor(embedded.backbone), capsule, sample)
    deviation = math.sqrt(expected * (1 - expected) / len(sample))
    assert abs(report.accuracy - expected) <= 4 * deviation
