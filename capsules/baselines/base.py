"""What a baseline has to say about itself."""

from typing import ClassVar, Protocol

from peft import PeftConfig
from torch import Tensor
from transformers import PreTrainedModel

from capsules.backbones.base import Backbone
from capsules.baselines.adapter import Adapter
from capsules.core import Reading, TokenBatch


class Method(Protocol):
    """One way of adapting a frozen backbone, through PEFT; holds its options and nothing learned.

    All methods ask PEFT for plain features, so that answers are read as those of capsules are. Its
    classification task would add a head of its own, read where each model's authors read it.
    """

    name: ClassVar[str]

    @property
    def learning_rate(self) -> float:
        """A rate to start from, for Adafactor without relative steps."""
        ...

    def slots(self, backbone: Backbone) -> int:
        """Positions it takes from the longest sequence."""
        ...

    def part(self, backbone: Backbone) -> PreTrainedModel:
        """The part of the backbone that PEFT is given."""
        ...

    def config(self, backbone: Backbone) -> PeftConfig:
        """What to ask PEFT for.

        Raises:
            OptionError: PEFT cannot apply the method to this backbone.
        """
        ...

    def features(
        self, backbone: Backbone, adapter: Adapter, tokens: TokenBatch, reading: Reading | None
    ) -> Tensor:
        """What labels are scored by, under autograd.

        Args:
            backbone: the frozen backbone.
            adapter: the method on :meth:`part`.
            tokens: B rows padded on the right, on the backbone's device.
            reading: for backbones that answer in words: what to read, on the same device.

        Returns:
            [B, D], or [M, D] with a reading, in the accumulation dtype.
        """
        ...
