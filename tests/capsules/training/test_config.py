from typing import Any, get_args

import pytest
from pydantic import ValidationError

from capsules.training.config import DEFAULT_LEARNING_RATE, TrainingConfig, VariantName
from capsules.variants.registry import VARIANTS


def test_the_defaults_are_the_published_recipe() -> None:
    config = TrainingConfig(task="trec")
    assert (config.variant, config.length, config.layers) == ("addition", 1, "all")
    assert config.verbalizers is None
    assert (config.epochs, config.batch_size, config.max_length) == (50, 32, 512)
    assert config.learning_rate is None
    assert all(rate > 0 for rate in DEFAULT_LEARNING_RATE.values())
    assert DEFAULT_LEARNING_RATE.keys() == {"encoder-only", "decoder-only", "encoder-decoder"}


def test_every_variant_can_be_named() -> None:
    assert set(get_args(VariantName)) == set(VARIANTS)
    for name in VARIANTS:
        assert TrainingConfig.model_validate({"task": "trec", "variant": name}).variant == name


@pytest.mark.parametrize("layers", ["all", "odd", "latter-half", (1,), (2, 3)], ids=str)
def test_layers_by_name_or_number(layers: Any) -> None:
    config = TrainingConfig(task="trec", layers=layers)
    assert config.layers == layers
    assert TrainingConfig.model_validate_json(config.model_dump_json()) == config


@pytest.mark.parametrize(
    "option",
    [
        {"task": "A/b"},
        {"task": ""},
        {"variant": "telepathy"},
        {"length": 0},
        {"layers": "even"},
        {"layers": [1, "first"]},
        {"layers": None},
        {"epochs": 0},
        {"patience": 0},
        {"batch_size": 0},
        {"learning_rate": 0.0},
        {"learning_rate": -0.1},
        {"learning_rate": float("nan")},
        {"learning_rate": float("inf")},
        {"max_length": 3},
        {"seed": -1},
        {"seed": 2**63},
        {"epoch": 3},
    ],
    ids=str,
)
def test_values_out_of_range_are_refused_by_name(option: dict[str, Any]) -> None:
    (name,) = option
    with pytest.raises(ValidationError) as refused:
        TrainingConfig(**{"task": "trec", **option})
    assert [error["loc"] for error in refused.value.errors()] == [(name,)]


@pytest.mark.parametrize("word", ["", "x" * 257])
def test_words_that_no_capsule_could_carry_are_refused(word: str) -> None:
    with pytest.raises(ValidationError) as refused:
        TrainingConfig(task="trec", verbalizers={"yes": "w1", "no": word})
    assert [error["loc"] for error in refused.value.errors()] == [("verbalizers", "no")]


def test_a_configuration_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        TrainingConfig(task="trec").seed = 1  # type: ignore[misc]
