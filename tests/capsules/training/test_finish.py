"""The capsule that a run ends in."""

from importlib.metadata import version
from typing import Any

import pytest
import torch

from capsules.artefact.checks import check_backbone
from capsules.artefact.file import Capsule, dump, parse
from capsules.artefact.manifest import MAX_GOLDEN_CHARACTERS
from capsules.artefact.reference import reference
from capsules.backbones.base import LoadedBackbone
from capsules.core import Example
from capsules.data.base import Dataset
from capsules.errors import OptionError
from capsules.evaluation.runner import evaluate, predict
from capsules.executors.torch import TorchExecutor
from capsules.template import Template
from capsules.training.finish import finish, pick_golden
from capsules.training.run import Run
from tests.capsules.training.conftest import MakeRun
from tests.support.datasets import separable

LABELS = ("c", "a", "b")
TEXT = Template("{text}")


@pytest.fixture(scope="module")
def rows() -> tuple[Dataset, Dataset]:
    train, validation = (separable(n, labels=LABELS, seed=n) for n in (36, 15))
    return train, validation


@pytest.fixture
def run(make_run: MakeRun, rows: tuple[Dataset, Dataset]) -> Run:
    run = make_run(rows=rows, epochs=3, length=2, description="Three kinds.", seed=4)
    run.run()
    return run


def test_the_manifest_tells_how_it_came_to_be(
    run: Run, tiny: LoadedBackbone, rows: tuple[Dataset, Dataset]
) -> None:
    manifest = finish(run, test_rows=9, metrics={"test_accuracy": 0.5}).manifest
    assert (manifest.task, manifest.description) == ("tiny", "Three kinds.")
    assert (manifest.variant, manifest.length, manifest.layers) == ("addition", 2, "all")
    assert tuple(manifest.labels) == LABELS
    assert (manifest.template, manifest.max_length) == ("{text}", 32)
    assert manifest.backbone == reference(tiny.info)
    record = manifest.training
    assert record is not None
    best = run.reports[run.best_epoch - 1]
    assert record.data_digest == rows[0].digest
    assert record.splits.model_dump() == {"train": 36, "validation": 15, "test": 9}
    assert (record.seed, record.epochs, record.best_epoch) == (4, 3, run.best_epoch)
    assert (record.batch_size, record.learning_rate) == (8, 0.02)
    assert record.metrics == {
        "validation_accuracy": best.validation_accuracy,
        "validation_loss": best.validation_loss,
        "test_accuracy": 0.5,
    }
    assert record.duration_seconds == round(run.seconds, 1)
    assert record.library_versions["torch"] == version("torch")
    assert "capsule-server" in record.library_versions


def test_the_tensors_are_the_best_epochs(run: Run) -> None:
    run.best = {name: value + 1 for name, value in run.best.items()}
    tensors = finish(run).tensors
    assert tensors.keys() == {"capsule", "head.weight", "head.bias"}
    for name, value in run.best.items():
        assert torch.equal(tensors[name], value)


def test_golden_examples_replay_after_the_way_to_bytes_and_back(
    run: Run, tiny: LoadedBackbone
) -> None:
    capsule = parse(dump(finish(run)))
    check_backbone(capsule.manifest, reference(tiny.info), tiny.info.max_tokens)
    golden = capsule.manifest.golden
    assert len(golden) == 8
    found = predict(
        tiny, TorchExecutor(tiny.backbone), capsule, [example.inputs for example in golden]
    )
    for recorded, prediction in zip(golden, found, strict=True):
        assert prediction.label == recorded.label
        assert prediction.probs == pytest.approx(recorded.probs, abs=1e-5)
        assert recorded.label == LABELS[recorded.probs.index(max(recorded.probs))]


def test_what_was_chosen_is_in_the_manifest_and_replays(
    make_run: MakeRun, tiny: LoadedBackbone
) -> None:
    for variant, layers, written in (
        ("prepending", "latter-half", "latter-half"),
        ("extraction", (1, 3), [1, 3]),
        ("projection", "odd", "odd"),
        ("task-only", "input", "input"),
        ("instance-only", "all", "all"),
    ):
        run = make_run(variant=variant, layers=layers, length=2, epochs=1)
        run.run()
        capsule = parse(dump(finish(run)))
        manifest = capsule.manifest
        assert (manifest.variant, manifest.layers, manifest.length) == (variant, written, 2)
        assert manifest.verbalizers is None
        check_replay(tiny, capsule)


def check_replay(loaded: LoadedBackbone, capsule: Capsule) -> None:
    """Golden examples are answered as they were recorded."""
    golden = capsule.manifest.golden
    found = predict(
        loaded, TorchExecutor(loaded.backbone), capsule, [example.inputs for example in golden]
    )
    assert len(golden) == 8
    for recorded, prediction in zip(golden, found, strict=True):
        assert prediction.label == recorded.label
        assert prediction.probs == pytest.approx(recorded.probs, abs=1e-5)


def test_a_head_without_a_bias_ships_without_one(
    make_run: MakeRun, tiny_llama: LoadedBackbone
) -> None:
    run = make_run(loaded=tiny_llama, epochs=1)
    run.run()
    capsule = parse(dump(finish(run)))
    assert capsule.tensors.keys() == {"capsule", "head.weight"}
    check_replay(tiny_llama, capsule)


@pytest.mark.parametrize("verbalizers", [None, {"yes": "w8 w9", "no": "w8"}], ids=str)
def test_labels_that_are_words_ship_their_words(
    make_run: MakeRun, tiny_t5: LoadedBackbone, verbalizers: dict[str, str] | None
) -> None:
    run = make_run(loaded=tiny_t5, verbalizers=verbalizers, epochs=1)
    run.run()
    capsule = parse(dump(finish(run)))
    assert capsule.manifest.labels == ["no", "yes"]
    assert capsule.manifest.verbalizers == (verbalizers or {"no": "no", "yes": "yes"})
    assert capsule.tensors.keys() == {"capsule"}
    check_replay(tiny_t5, capsule)
    report = evaluate(tiny_t5, TorchExecutor(tiny_t5.backbone), capsule, run.validation.examples)
    assert report.accuracy == pytest.approx(run.reports[0].validation_accuracy)


def test_the_capsule_answers_as_the_run_did(
    run: Run, tiny: LoadedBackbone, rows: tuple[Dataset, Dataset]
) -> None:
    report = evaluate(tiny, TorchExecutor(tiny.backbone), finish(run), rows[1].examples)
    best = run.reports[run.best_epoch - 1]
    assert report.accuracy == pytest.approx(best.validation_accuracy)
    assert report.labels == LABELS


def test_a_linear_head_alone_is_no_capsule(make_run: MakeRun) -> None:
    run = make_run(variant=None, epochs=1)
    run.run()
    with pytest.raises(OptionError) as refused:
        finish(run)
    assert refused.value.field == "variant"


def labelled(labels: str, order: Any = None) -> Dataset:
    return Dataset.of(
        [Example({"text": f"w{n}"}, label) for n, label in enumerate(labels)], labels=order
    )


@pytest.mark.parametrize(
    ("labels", "picked"),
    [
        ("aaaabbbbcccc", "w0 w4 w8 w1 w5 w9 w2 w6"),
        ("aaaaaaaaaaab", "w0 w11 w1 w2 w3 w4 w5 w6"),
        ("ab", "w0 w1"),
        ("abcdefghijkl", "w0 w1 w2 w3 w4 w5 w6 w7"),
    ],
)
def test_golden_examples_show_every_label_they_can(labels: str, picked: str) -> None:
    assert " ".join(row.inputs["text"] for row in pick_golden(labelled(labels), TEXT)) == picked


def test_golden_examples_follow_the_order_of_the_labels() -> None:
    picked = pick_golden(labelled("aabb", order=("b", "a", "none")), TEXT)
    assert [row.label for row in picked] == ["b", "a", "b", "a"]


def test_rows_too_long_for_a_file_are_no_golden_examples() -> None:
    longest = "x" * MAX_GOLDEN_CHARACTERS
    rows = Dataset.of(
        Example({"text": text}, label)
        for text, label in ((longest + "x", "a"), (longest, "a"), ("short", "b"))
    )
    assert [len(row.inputs["text"]) for row in pick_golden(rows, TEXT)] == [len(longest), 5]
