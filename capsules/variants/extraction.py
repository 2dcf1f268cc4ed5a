"""A learned convolution of the layer's input instead of its plain mean."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from capsules.core import Geometry
from capsules.variants.base import LearnedVectors
from capsules.variants.terms import KERNEL, Terms


class Extraction(LearnedVectors):
    """``S^i_j = p^i_j + Mean(Conv^i(S_^{i-1} (+) H^{i-1}))``, a depthwise convolution.

    ``Conv(x)_t = b + sum_j w_j * x_{t+j-2}`` over the counted positions, with zeros beyond them.
    """

    name: ClassVar[str] = "extraction"

    def shapes(
        self, geometry: Geometry, injections: int, length: int
    ) -> dict[str, tuple[int, ...]]:
        """``capsule`` [injections, length, D] and the convolution's weight and bias."""
        width = geometry.hidden_size
        return {
            **super().shapes(geometry, injections, length),
            "extraction.weight": (injections, width, KERNEL),
            "extraction.bias": (injections, width),
        }

    def initial(
        self, geometry: Geometry, injections: int, length: int, generator: torch.Generator
    ) -> dict[str, Tensor]:
        """A convolution that changes nothing, so that training starts where addition does."""
        shapes = self.shapes(geometry, injections, length)
        weight = torch.zeros(shapes["extraction.weight"])
        weight[:, :, KERNEL // 2] = 1.0
        return {
            **super().initial(geometry, injections, length, generator),
            "extraction.weight": weight,
            "extraction.bias": torch.zeros(shapes["extraction.bias"]),
        }

    def terms(self, tensors: Mapping[str, Tensor], length: int) -> Terms:
        """The learned vectors and the mean of the convolved input, which is all its taps."""
        bias = tensors["extraction.bias"].unsqueeze(-2)
        taps = tensors["extraction.weight"].transpose(-1, -2)
        return Terms(tensors["capsule"] + bias, (0,) * length, taps=taps)
