from typing import Any

import pytest
from pydantic import ValidationError

from capsules.training.config import DEFAULT_LEARNING_RATE, TrainingConfig


def test_the_defaults_are_the_published_recipe() -> None:
    config = TrainingConfig(task="trec")
    assert (config.variant, config.length) == ("addition", 1)
    assert (config.epochs, config.batch_size, config.max_length) == (50, 32, 512)
    assert config.learning_rate is None
    assert DEFAULT_LEARNING_RATE["encoder-only"] > 0


@pytest.mark.parametrize(
    "option",
    [
        {"task": "A/b"},
        {"task": ""},
        {"variant": "telepathy"},
        {"length": 0},
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


def test_a_configuration_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        TrainingConfig(task="trec").seed = 1  # type: ignore[misc]
