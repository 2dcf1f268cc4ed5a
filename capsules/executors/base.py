"""What the engine asks of a way to run the backbone."""

from collections.abc import Callable
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from capsules.core import Reading, TokenBatch
from capsules.injection import Prompts

TOLERANCE = 1e-2
"""How far a probability may be from what was recorded, where it is computed as it was then."""

Pass = Callable[[], Tensor]
"""One forward pass that has all it needs; called once, it gives the features."""


class Executor(Protocol):
    """Runs batches of mixed capsules: one thread runs them, and another may prepare the next.

    One that has lanes takes passes of as many threads at a time, each of which also prepares its own.

    Attributes:
        name: what it is called in settings, logs and replies.
        padding_free: whether rows of any lengths share a batch at no cost, since only real
            positions are computed.
        lanes: how many passes can run at a time.
        tolerance: how far a probability may be from the one that the reference gives in float32.
    """

    name: str
    padding_free: ClassVar[bool]
    lanes: int = 1
    tolerance: float = TOLERANCE

    @property
    def device(self) -> torch.device:
        """Where prompts are expected and features are given."""
        ...

    def prepare(
        self,
        tokens: TokenBatch,
        prompts: Prompts,
        reading: Reading | None = None,
        *,
        alone: bool = True,
    ) -> Pass:
        """Do what a pass needs before the model, so that it can be done while another pass runs.

        The pass gives what labels are scored by, in the accumulation dtype, without autograd:
        [B, D], or [M, D] with a reading.

        Args:
            tokens: B rows of up to T tokens, on any device.
            prompts: their capsules, on :attr:`device`; not to be changed before the pass is run.
            reading: for backbones that answer in words: what to read, on any device.
            alone: whether no other pass will run meanwhile, so that this one may take all cores.
        """
        ...

    def features(
        self, tokens: TokenBatch, prompts: Prompts, reading: Reading | None = None
    ) -> Tensor:
        """Prepare a pass and run it, see :meth:`prepare`."""
        return self.prepare(tokens, prompts, reading)()
