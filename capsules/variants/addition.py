"""The published capsule: learned vector plus mean, in one token."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from capsules.core import Geometry
from capsules.functional import masked_mean


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
        """Normal with deviation 0.02, the usual start of a soft prompt."""
        shape = self.shapes(geometry, injections, length)["capsule"]
        return {"capsule": torch.randn(shape, generator=generator) * 0.02}

    def prompt(self, tensors: Mapping[str, Tensor], hidden: Tensor, weights: Tensor) -> Tensor:
        """Add the mean of the layer's input to each learned vector, giving [B, length, D]."""
        return tensors["capsule"] + masked_mean(hidden, weights).unsqueeze(1)
