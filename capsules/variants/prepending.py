"""Mean and learned vectors as tokens of their own."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor
from torch.nn.functional import pad

from capsules.variants.base import LearnedVectors
from capsules.variants.terms import Terms


class Prepending(LearnedVectors):
    """``S^i = [Mean(S_^{i-1} (+) H^{i-1}) ; p^i_1 ; ... ; p^i_length]``."""

    name: ClassVar[str] = "prepending"

    def slots(self, length: int) -> int:
        """One position for the mean and one a learned vector."""
        return length + 1

    def terms(self, tensors: Mapping[str, Tensor], length: int) -> Terms:
        """The mean first, which a causal backbone's learned vectors can then attend to."""
        return Terms(pad(tensors["capsule"], (0, 0, 1, 0)), (1, *(0,) * length))
