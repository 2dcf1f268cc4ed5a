from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from capsules.backbones.base import Backbone, LoadedBackbone
from capsules.core import Reading, TokenBatch
from capsules.executors.base import Pass
from capsules.executors.onnx.verify import FEATURE_TOLERANCE, difference
from capsules.executors.torch import TorchExecutor
from capsules.injection import Prompts


class Altered(TorchExecutor):
    """Torch's answers, changed."""

    def __init__(self, backbone: Backbone, change: Callable[[Tensor], Tensor]) -> None:
        super().__init__(backbone)
        self.change = change

    def prepare(
        self,
        tokens: TokenBatch,
        prompts: Prompts,
        reading: Reading | None = None,
        *,
        alone: bool = True,
    ) -> Pass:
        run = super().prepare(tokens, prompts, reading)
        return lambda: self.change(run().clone())


def last_moved(features: Tensor) -> Tensor:
    """One number of one row is off."""
    features[-1, -1] += 0.01
    return features


def last_lost(features: Tensor) -> Tensor:
    features[-1, 0] = torch.nan
    return features


def test_the_reference_does_not_differ_from_itself(tiny: LoadedBackbone) -> None:
    assert difference(tiny.backbone, TorchExecutor(tiny.backbone)) == 0.0


def test_one_number_that_is_off_counts(tiny: LoadedBackbone) -> None:
    found = difference(tiny.backbone, Altered(tiny.backbone, last_moved))
    assert FEATURE_TOLERANCE < found <= 0.011


@pytest.mark.parametrize("change", [last_lost, lambda features: features[:-1]])
def test_what_is_no_number_or_of_another_shape_is_infinitely_far(
    change: Callable[[Tensor], Tensor], tiny: LoadedBackbone
) -> None:
    assert difference(tiny.backbone, Altered(tiny.backbone, change)) == float("inf")


def test_large_features_may_be_off_in_proportion(tiny: LoadedBackbone) -> None:
    def scaled(features: Tensor) -> Tensor:
        return features * (1 + 1e-5)

    assert 0 < difference(tiny.backbone, Altered(tiny.backbone, scaled)) <= 1.1e-5


def test_words_are_compared_as_well(tiny_t5: LoadedBackbone) -> None:
    assert difference(tiny_t5.backbone, TorchExecutor(tiny_t5.backbone)) == 0.0
    assert difference(tiny_t5.backbone, Altered(tiny_t5.backbone, last_moved)) > FEATURE_TOLERANCE
