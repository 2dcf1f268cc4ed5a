"""Learned vectors without the mean: Deep Prompt-Tuning with `length` tokens."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from capsules.variants.base import LearnedVectors
from capsules.variants.terms import Terms


class TaskOnly(LearnedVectors):
    """``S^i_j = p^i_j``, the ablation that has no instance term."""

    name: ClassVar[str] = "task-only"

    def terms(self, tensors: Mapping[str, Tensor], length: int) -> Terms:
        """The learned vectors as they are."""
        return Terms(tensors["capsule"], (0,) * length)
