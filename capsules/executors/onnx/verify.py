"""Holds a graph to the answers of the reference executor."""

import torch

from capsules.backbones.base import Backbone
from capsules.executors.base import Executor
from capsules.executors.onnx.examples import example
from capsules.executors.torch import TorchExecutor

FEATURE_TOLERANCE = 1e-4
"""Largest difference of a feature, of the largest feature where that is beyond 1."""

QUANTIZED_FEATURE_TOLERANCE = 0.2
"""The same where weights are 8-bit integers."""

LENGTHS = (1, 14, 6, 37, 3)


def difference(backbone: Backbone, executor: Executor, *, seed: int = 3) -> float:
    """How far an executor is from the reference on random texts and capsules of every variant.

    Args:
        backbone: what both run, in float32 on the CPU.
        executor: the other one.
        seed: of the batch.

    Returns:
        The largest difference of a feature, divided by the largest feature if that is over 1.
    """
    reference = TorchExecutor(backbone)
    lengths = [min(length, backbone.max_tokens) for length in LENGTHS]
    found = 0.0
    for shift in (0, 1):
        batch = example(backbone, lengths, shift=shift, seed=seed)
        expected = reference.features(*batch)
        got = executor.features(*batch)
        if got.shape != expected.shape or not bool(got.isfinite().all()):
            return float("inf")
        scale = torch.clamp(expected.abs().max(), min=1.0)
        found = max(found, float((got - expected).abs().max() / scale))
    return found
