"""Mean and learned vectors as tokens of their own."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from capsules.variants.base import LearnedVectors
from capsules.variants.pool import Pool


class Prepending(LearnedVectors):
    """``S^i = [Mean(S_^{i-1} (+) H^{i-1}) ; p^i_1 ; ... ; p^i_length]``."""

    name: ClassVar[str] = "prepending"

    def slots(self, length: int) -> int:
        """One position for the mean and one a learned vector."""
        return length + 1

    def prompt(self, tensors: Mapping[str, Tensor], pool: Pool, length: int) -> Tensor:
        """The mean first, which a causal backbone's learned vectors can then attend to."""
        learned = tensors["capsule"]
        mean = pool.mean.unsqueeze(1)
        return torch.cat((mean, learned.to(mean.dtype)), dim=1)
