"""What a variant has to say about itself."""

from collections.abc import Mapping
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from capsules.core import Geometry
from capsules.variants.pool import Pool
from capsules.variants.terms import Terms

# Deviation of the normal distribution that learned vectors start from, as soft prompts usually do.
START_DEVIATION = 0.02


class Variant(Protocol):
    """One way of forming the capsule tokens of a layer from its input and the learned tensors.

    A variant is stateless: its learned tensors are passed in, so rows of many tasks share one
    call. The tensors' leading axis in a capsule file is the injection (one a layer injected).
    """

    name: ClassVar[str]

    def shapes(
        self, geometry: Geometry, injections: int, length: int
    ) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the learned tensors, head excluded, as in the capsule file."""
        ...

    def slots(self, length: int) -> int:
        """How many positions a capsule of this length takes in the sequence."""
        ...

    def initial(
        self, geometry: Geometry, injections: int, length: int, generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Start values for training, float32, shaped as :meth:`shapes` says."""
        ...

    def terms(self, tensors: Mapping[str, Tensor], length: int) -> Terms:
        """What the capsule tokens are made of.

        Args:
            tensors: the learned tensors, each with the same leading axes, such as rows and
                injections, before those of a capsule's layer.
            length: of the capsule.
        """
        ...

    def prompt(self, tensors: Mapping[str, Tensor], pool: Pool, length: int) -> Tensor:
        """The capsule tokens that enter one layer.

        Args:
            tensors: the learned tensors of this layer, one per row, each [b, ...].
            pool: means of these rows' input of the layer, before injection.
            length: of the capsule.

        Returns:
            [b, slots, D].
        """
        return self.terms(tensors, length).tokens(pool)


class LearnedVectors(Variant):
    """What variants with a learned vector p^i_j for each injection and token have in common."""

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
        """Vectors near zero: normal, of deviation :data:`START_DEVIATION`."""
        shape = (injections, length, geometry.hidden_size)
        return {"capsule": torch.randn(shape, generator=generator) * START_DEVIATION}
