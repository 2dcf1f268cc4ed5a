"""A learned low-rank map of the layer's mean."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from capsules.core import Geometry
from capsules.variants.base import LearnedVectors
from capsules.variants.terms import RANK, Terms


class Projection(LearnedVectors):
    """``S^i_j = p^i_j + U^i V^i Mean(S_^{i-1} (+) H^{i-1})`` with U, V of rank 8, no bias."""

    name: ClassVar[str] = "projection"

    def shapes(
        self, geometry: Geometry, injections: int, length: int
    ) -> dict[str, tuple[int, ...]]:
        """``capsule`` [injections, length, D], V (`down`) and U (`up`)."""
        width = geometry.hidden_size
        return {
            **super().shapes(geometry, injections, length),
            "projection.down": (injections, RANK, width),
            "projection.up": (injections, width, RANK),
        }

    def initial(
        self, geometry: Geometry, injections: int, length: int, generator: torch.Generator
    ) -> dict[str, Tensor]:
        """U is zero and V random, as low-rank adapters start: first there is no instance term."""
        shapes = self.shapes(geometry, injections, length)
        vectors = super().initial(geometry, injections, length, generator)
        down = torch.randn(shapes["projection.down"], generator=generator)
        return {
            **vectors,
            "projection.down": down * geometry.hidden_size**-0.5,
            "projection.up": torch.zeros(shapes["projection.up"]),
        }

    def terms(self, tensors: Mapping[str, Tensor], length: int) -> Terms:
        """The learned vectors and the mapped mean."""
        down, up = tensors["projection.down"], tensors["projection.up"]
        return Terms(tensors["capsule"], (0,) * length, down=down, up=up)
