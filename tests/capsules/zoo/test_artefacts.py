"""The shipped capsules on the backbone they were trained on."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from capsules import zoo
from capsules.artefact.checks import check_backbone
from capsules.artefact.file import Capsule, digest, dump, parse
from capsules.artefact.reference import reference
from capsules.backbones.base import LoadedBackbone
from capsules.evaluation.runner import predict
from capsules.executors.torch import TorchExecutor
from capsules.zoo.build import Result
from capsules.zoo.recipe import RECIPES
from tests.reference.bert import Bert
from tests.reference.capsule import probabilities
from tests.reference.maths import Array
from tests.support.capsules import random_capsule

FOLDER = Path(zoo.__file__).parent
ARTEFACTS = sorted((FOLDER / "artefacts").glob("*.safetensors"))
TEXTS = (
    "Who was the first American in space ?",
    "WINNER!! You have been selected to receive a £900 prize. Call 09061701461 now.",
)

shipped = pytest.mark.parametrize("path", ARTEFACTS, ids=lambda path: path.stem)


@pytest.fixture(scope="module")
def bert(embedded: LoadedBackbone) -> Bert:
    return Bert.from_folder(embedded.info.path)


@pytest.fixture(scope="module")
def tokenizer(embedded: LoadedBackbone) -> Tokenizer:
    backend = Tokenizer.from_file(str(embedded.info.path / "tokenizer.json"))
    backend.no_padding()
    backend.no_truncation()
    return backend


@pytest.fixture(scope="module")
def executor(embedded: LoadedBackbone) -> TorchExecutor:
    return TorchExecutor(embedded.backbone)


def answers(
    loaded: LoadedBackbone, executor: TorchExecutor, capsule: Capsule, texts: Sequence[str]
) -> Array:
    found = predict(loaded, executor, capsule, [{"text": text} for text in texts])
    return np.array([prediction.probs for prediction in found])


def expected(
    bert: Bert, tokenizer: Tokenizer, tensors: Mapping[str, Array], texts: Sequence[str]
) -> Array:
    widened = {name: tensor.astype(np.float64) for name, tensor in tensors.items()}
    rows = [
        probabilities(
            bert,
            tokenizer.encode(text).ids,
            widened["capsule"],
            widened["head.weight"],
            widened["head.bias"],
        )
        for text in texts
    ]
    return np.stack(rows)


def header_manifest(path: Path) -> dict[str, Any]:
    with safe_open(path, framework="np") as file:
        manifest: dict[str, Any] = json.loads(file.metadata()["capsule"])
    return manifest


@pytest.mark.parametrize("length", [1, 3])
def test_a_random_capsule_answers_as_the_equations_say(
    embedded: LoadedBackbone,
    executor: TorchExecutor,
    bert: Bert,
    tokenizer: Tokenizer,
    length: int,
) -> None:
    capsule = random_capsule(embedded.info, labels=4, length=length)
    tensors = {name: tensor.numpy() for name, tensor in capsule.tensors.items()}
    got = answers(embedded, executor, capsule, TEXTS)
    assert np.abs(got[0] - got[1]).max() > 1e-2
    assert np.abs(got - expected(bert, tokenizer, tensors, TEXTS)).max() < 1e-4


@shipped
def test_a_shipped_capsule_answers_as_the_equations_say(
    path: Path,
    embedded: LoadedBackbone,
    executor: TorchExecutor,
    bert: Bert,
    tokenizer: Tokenizer,
) -> None:
    recorded = header_manifest(path)["golden"][0]
    texts = [recorded["inputs"]["text"], *TEXTS[:1]]
    got = answers(embedded, executor, parse(path.read_bytes()), texts)
    wanted = expected(bert, tokenizer, load_file(path), texts)
    assert np.abs(got - wanted).max() < 1e-4
    assert np.abs(wanted[0] - np.array(recorded["probs"])).max() < 1e-2


@shipped
def test_a_shipped_capsule_replays_its_golden_examples(
    path: Path, embedded: LoadedBackbone, executor: TorchExecutor
) -> None:
    capsule = parse(path.read_bytes())
    golden = capsule.manifest.golden
    assert golden
    found = predict(embedded, executor, capsule, [example.inputs for example in golden])
    for example, prediction in zip(golden, found, strict=True):
        assert prediction.label == example.label
        assert prediction.probs == pytest.approx(example.probs, abs=1e-2)


@shipped
def test_a_shipped_capsule_belongs_to_the_embedded_backbone(
    path: Path, embedded: LoadedBackbone
) -> None:
    data = path.read_bytes()
    capsule = parse(data)
    check_backbone(capsule.manifest, reference(embedded.info), embedded.info.max_tokens)
    assert capsule.manifest.task == path.stem
    assert capsule.manifest.description
    assert capsule.manifest.training is not None
    assert dump(capsule) == data


@shipped
def test_a_shipped_capsule_is_the_one_whose_results_are_reported(path: Path) -> None:
    (recipe,) = (recipe for recipe in RECIPES if recipe.task == path.stem)
    report = FOLDER / "results" / f"{recipe.task}-{recipe.seeds[0]}.json"
    result = Result.model_validate_json(report.read_bytes())
    training = parse(path.read_bytes()).manifest.training
    assert training is not None
    assert result.digest == digest(path.read_bytes())
    assert result.capsule.test_accuracy == training.metrics["test_accuracy"]


def test_the_shipped_capsules_are_listed() -> None:
    assert [file.name for file in zoo.artefacts()] == [path.name for path in ARTEFACTS]
