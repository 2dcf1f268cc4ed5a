"""Learned vectors without the mean: Deep Prompt-Tuning with `length` tokens."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from capsules.variants.base import LearnedVectors
from capsules.variants.pool import Pool


class TaskOnly(LearnedVectors):
    """``S^i_j = p^i_j``, the ablation that has no instance term."""

    name: ClassVar[str] = "task-only"

    def prompt(self, tensors: Mapping[str, Tensor], pool: Pool, length: int) -> Tensor:
        """The learned vectors as they are, [b, length, D]."""
        return tensors["capsule"]
