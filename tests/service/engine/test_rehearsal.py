from pathlib import Path
from typing import Any

import pytest

from capsules.backbones.base import LoadedBackbone
from capsules.backbones.load import load
from capsules.core import MAX_LABEL_CHARACTERS
from capsules.data.split import split
from capsules.errors import ArtefactError, CapsuleError, OptionError
from capsules.training.config import TrainingConfig
from capsules.training.finish import finish
from capsules.training.run import Run
from service.engine.rehearsal import Rehearsal
from tests.support.backbones import save_tiny_bert, tiny_bert, tiny_family
from tests.support.datasets import separable


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> LoadedBackbone:
    return tiny_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory) -> LoadedBackbone:
    return tiny_family(tmp_path_factory.mktemp("t5"), "t5")


def check(loaded: LoadedBackbone, labels: tuple[str, ...] = ("w1", "w2"), **options: Any) -> None:
    rehearsal = Rehearsal(loaded)
    config = TrainingConfig(**{"task": "spam", "max_length": 16, **options})
    rehearsal.check(config, labels)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"variant": "prepending", "length": 3, "layers": (1, 3)},
        {"variant": "extraction", "layers": "odd"},
        {"max_length": 65},
        {"template": "{premise} [and] {hypothesis}"},
    ],
)
def test_what_can_be_trained_is_taken(bert: LoadedBackbone, options: dict[str, Any]) -> None:
    check(bert, **options)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"max_length": 66}, "max_length"),
        ({"length": 14}, "max_length"),
        ({"layers": (1, 4)}, "layers"),
        ({"layers": (2, 1)}, "layers"),
        ({"task": "latest"}, "task"),
        ({"template": "no field"}, "template"),
        ({"template": "{text"}, "template"),
        ({"verbalizers": {"w1": "w1", "w2": "w2"}}, "verbalizers"),
    ],
)
def test_what_the_backbone_cannot_run_is_refused(
    bert: LoadedBackbone, options: dict[str, Any], field: str
) -> None:
    with pytest.raises(CapsuleError) as caught:
        check(bert, **options)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"variant": "instance-only"}, "variant"),
        ({"verbalizers": {"w1": "w7", "w2": "w7"}}, "verbalizers.w2"),
        ({"verbalizers": {"w1": "w7"}}, "verbalizers"),
    ],
)
def test_what_cannot_be_told_in_words_is_refused(
    t5: LoadedBackbone, options: dict[str, Any], field: str
) -> None:
    check(t5)
    check(t5, verbalizers={"w1": "w3", "w2": "w3 w4"})
    with pytest.raises(CapsuleError) as caught:
        check(t5, **options)
    assert caught.value.field == field


def test_labels_that_no_file_can_hold_are_refused(bert: LoadedBackbone) -> None:
    longest = MAX_LABEL_CHARACTERS - 5
    labels = [f"{number:05}{'x' * longest}" for number in range(10_000)]
    check(bert, tuple(labels))
    with pytest.raises(ArtefactError, match="shorten them") as caught:
        check(bert, tuple(label.replace("x", "\N{GRINNING FACE}") for label in labels))
    assert (caught.value.code, caught.value.field) == ("header_too_large", "labels")


def test_a_length_is_chosen_that_the_backbone_takes(
    bert: LoadedBackbone, t5: LoadedBackbone
) -> None:
    assert Rehearsal(bert).max_length("addition", 1) == 65
    assert Rehearsal(bert).max_length("prepending", 2) == 67
    assert Rehearsal(t5).max_length("addition", 1) == 512
    for loaded in (bert, t5):
        check(loaded, max_length=Rehearsal(loaded).max_length("addition", 1))


def test_the_learning_rate_is_that_of_the_family(bert: LoadedBackbone) -> None:
    run_rate = 0.02
    assert Rehearsal(bert).learning_rate == run_rate


def test_the_backbone_may_be_served_in_another_dtype(tmp_path: Path) -> None:
    loaded = load(str(save_tiny_bert(tmp_path)), device="cpu", dtype="bfloat16")
    check(loaded)
    with pytest.raises(OptionError, match="max_length"):
        check(loaded, max_length=1000)


def test_what_was_rehearsed_comes_out(bert: LoadedBackbone) -> None:
    parts = split(separable(24), seed=0)
    config = TrainingConfig(task="spam", epochs=1, max_length=16, variant="projection")
    Rehearsal(bert).check(config, parts.train.labels)
    run = Run(bert, config, parts.train, parts.validation)
    run.run()
    assert finish(run).manifest.labels == ["no", "yes"]
