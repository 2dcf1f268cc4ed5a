"""The published capsule: learned vector plus mean, in one token."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from capsules.variants.base import LearnedVectors
from capsules.variants.terms import Terms


class Addition(LearnedVectors):
    """``S^i_j = p^i_j + Mean(S_^{i-1} (+) H^{i-1})`` for each of the `length` tokens j."""

    name: ClassVar[str] = "addition"

    def terms(self, tensors: Mapping[str, Tensor], length: int) -> Terms:
        """The learned vectors and the mean in every slot."""
        return Terms(tensors["capsule"], (1,) * length)
