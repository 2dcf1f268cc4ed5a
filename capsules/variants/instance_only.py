"""The mean without learned vectors: nothing to train but a head."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from capsules.core import Geometry
from capsules.variants.base import Variant
from capsules.variants.terms import Terms


class InstanceOnly(Variant):
    """``S^i_j = Mean(S_^{i-1} (+) H^{i-1})``, the ablation that has no task term."""

    name: ClassVar[str] = "instance-only"

    def shapes(
        self, geometry: Geometry, injections: int, length: int
    ) -> dict[str, tuple[int, ...]]:
        """No tensors."""
        return {}

    def slots(self, length: int) -> int:
        """One position a token."""
        return length

    def initial(
        self, geometry: Geometry, injections: int, length: int, generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Nothing."""
        return {}

    def terms(self, tensors: Mapping[str, Tensor], length: int) -> Terms:
        """The mean, `length` times over."""
        return Terms(None, (1,) * length)
