"""Learned vectors without the mean: Deep Prompt-Tuning with `length` tokens."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from capsules.core import Geometry
from capsules.variants.base import start_vectors
from capsules.variants.pool import Pool


class TaskOnly:
    """``S^i_j = p^i_j``, the ablation that has no instance term."""

    name: ClassVar[str] = "task-only"

    def shapes(
        self, geometry: Geometry, injections: int, length: int
    ) -> dict[str, tuple[int, ...]]:
        """``capsule`` [injections, length, D]."""
        return {"capsule": (injections, length, geometry.hidden_size)}

    def slots(self, length: int) -> int:
        """One position a token."""
        return length

    def initial(
        self, geometry: Geometry, injections: int, length: int, generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Vectors near zero."""
        return {"capsule": start_vectors(geometry, injections, length, generator)}

    def prompt(self, tensors: Mapping[str, Tensor], pool: Pool, length: int) -> Tensor:
        """The learned vectors as they are, [b, length, D]."""
        return tensors["capsule"]
