"""The mean without learned vectors: nothing to train but a head."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from capsules.core import Geometry
from capsules.variants.pool import Pool


class InstanceOnly:
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

    def prompt(self, tensors: Mapping[str, Tensor], pool: Pool, length: int) -> Tensor:
        """The mean, `length` times over, [b, length, D]."""
        return pool.mean.unsqueeze(1).expand(-1, length, -1)
