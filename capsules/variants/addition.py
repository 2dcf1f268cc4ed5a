"""The published capsule: learned vector plus mean, in one token."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from capsules.variants.base import LearnedVectors
from capsules.variants.pool import Pool


class Addition(LearnedVectors):
    """``S^i_j = p^i_j + Mean(S_^{i-1} (+) H^{i-1})`` for each of the `length` tokens j."""

    name: ClassVar[str] = "addition"

    def prompt(self, tensors: Mapping[str, Tensor], pool: Pool, length: int) -> Tensor:
        """Add the mean of the layer's input to each learned vector, giving [b, length, D]."""
        return tensors["capsule"] + pool.mean.unsqueeze(1)
