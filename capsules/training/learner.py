"""What a training run trains."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from capsules.core import TokenBatch


class Learner(nn.Module, ABC):
    """A few tensors that, with a frozen backbone, score the labels of one task.

    The backbone is no submodule: only what is learned has parameters here.

    Attributes:
        slots: positions of the sequence that are not left to the text.
        identity: what it is, as far as the run's options do not say.
    """

    slots: int
    identity: str = ""

    @abstractmethod
    def named(self) -> dict[str, Tensor]:
        """The learned tensors by name; those of a head begin with ``head.``."""

    @abstractmethod
    def features(self, tokens: TokenBatch) -> Tensor:
        """What :meth:`score` takes, for B rows on the backbone's device, under autograd."""

    @abstractmethod
    def score(self, features: Tensor) -> Tensor:
        """[B, L] scores, whose softmax is the probabilities of the labels."""

    @property
    def fixed_features(self) -> bool:
        """Whether features depend on nothing that is learned, so that they can be kept."""
        return all(name.startswith("head.") for name in self.named())

    def forward(self, tokens: TokenBatch) -> Tensor:
        """[B, L] scores of a batch."""
        return self.score(self.features(tokens))

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Set every learned tensor from a mapping as :meth:`named` gives."""
        with torch.no_grad():
            for name, parameter in self.named().items():
                parameter.copy_(tensors[name])

    def snapshot(self) -> dict[str, Tensor]:
        """Copies of the learned tensors, on the CPU."""
        return {name: value.detach().cpu().clone() for name, value in self.named().items()}
