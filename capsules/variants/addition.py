"""The published capsule: learned vector plus mean, in one token."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from capsules.core import Geometry
from capsules.variants.base import start_vectors
from capsules.variants.pool import Pool


class Addition:
    """``S^i_j = p^i_j + Mean(S_^{i-1} (+) H^{i-1})`` for each of the `length` tokens j."""

    name: ClassVar[str] = "addition"

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
        """Vectors near zero, so that training starts at the mean."""
        return {"capsule": start_vectors(geometry, injections, length, generator)}

    def prompt(self, tensors: Mapping[str, Tensor], pool: Pool, length: int) -> Tensor:
        """Add the mean of the layer's input to each learned vector, giving [b, length, D]."""
        return tensors["capsule"] + pool.mean.unsqueeze(1)
