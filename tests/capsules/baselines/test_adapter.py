import warnings

import pytest
import torch
from peft.tuners.lora import LoraLayer

from capsules.baselines.adapter import quiet, seeded
from tests.capsules.baselines.conftest import Case, Load


def test_changed_modules_are_in_place_for_as_long_as_they_are_laid(
    load: Load,
) -> None:
    case = Case("lora", *load("bert"))
    model = case.loaded.backbone.model
    adapter = case.learner().adapter

    def changed() -> list[str]:
        return [name for name, module in model.named_modules() if isinstance(module, LoraLayer)]

    expected = [
        f"encoder.layer.{layer}.attention.self.{name}"
        for layer in range(3)
        for name in ("query", "value")
    ]
    assert changed() == []
    with adapter.laid():
        assert changed() == expected
    with pytest.raises(RuntimeError, match="stop"), adapter.laid():
        raise RuntimeError("stop")
    assert changed() == []


def test_only_what_peft_cannot_help_is_withheld() -> None:
    with quiet():
        warnings.warn("`past_key_values` is deprecated and will go.", FutureWarning, stacklevel=1)
        with pytest.warns(FutureWarning, match="something else"):
            warnings.warn("something else is deprecated", FutureWarning, stacklevel=1)
    with pytest.warns(FutureWarning, match="past_key_values"):
        warnings.warn("`past_key_values` is deprecated and will go.", FutureWarning, stacklevel=1)


def test_a_seed_decides_and_leaves_no_trace() -> None:
    state = torch.get_rng_state()
    with seeded(3):
        first = torch.rand(2)
    with seeded(3):
        assert torch.equal(torch.rand(2), first)
    assert torch.equal(torch.get_rng_state(), state)
