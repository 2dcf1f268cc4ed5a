"""What the engine asks of a way to run the backbone."""

from typing import ClassVar, Protocol

import torch
from torch import Tensor

from capsules.core import Reading, TokenBatch
from capsules.injection import Prompts


class Executor(Protocol):
    """Runs batches of mixed capsules; owned by one thread."""

    name: ClassVar[str]

    @property
    def device(self) -> torch.device:
        """Where prompts are expected and features are given."""
        ...

    def features(
        self, tokens: TokenBatch, prompts: Prompts, reading: Reading | None = None
    ) -> Tensor:
        """What labels are scored by, in the accumulation dtype, without autograd.

        Args:
            tokens: B rows of up to T tokens, on any device.
            prompts: their capsules, on :attr:`device`.
            reading: for backbones that answer in words: what to read, on any device.

        Returns:
            [B, D], or [M, D] with a reading.
        """
        ...
