"""How an engine is set up."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from capsules.errors import OptionError
from service.engine.batcher import Limits
from service.engine.records import PROOF_CALLER
from service.settings import BATCHES_AT_ONCE, MAX_BATCH_ROWS

PROOF_WEIGHT = 0.1
"""What golden examples get of a busy model, beside any number of clients that get 1 each."""

# Where padding is computed; where it is free, as many as the settings know of.
MAX_BATCH_ROWS_PADDED = 32
MAX_BATCH_TOKENS = {"cpu": 2048, "cuda": 32_768}
# A core is as fast on a few hundred positions as on more, and shorter batches answer sooner.
MAX_BATCH_TOKENS_PADDING_FREE = {"cpu": 256, "cuda": 32_768}
# What a forward pass costs before its first token, in tokens.
FREE_PADDING = {"cpu": 32, "cuda": 4096}
# Rows looked at for a batch: where they join in their order, few more than fit.
WINDOW, WINDOW_PADDING_FREE = 512, 128


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Options of the engine.

    Attributes:
        threads: torch's threads for one operation; None leaves torch's own choice.
        tokenise_threads: threads that render templates and tokenise.
        queue_rows: rows that may be on their way to the model, being tokenised or waiting.
        max_batch_rows: most rows of one forward pass; None for 32, and 64 where padding is free.
        max_batch_tokens: most positions of one forward pass, padding included where it is
            computed; None for 2048 on a CPU, or 256 where padding is free, and 32,768 on CUDA.
        max_padding: most work done per work needed, once a batch holds more than a few rows.
        attention_cost: where padding is free: what a position pays for each one that it attends
            to, as a part of all that it costs besides; 1 / (6 D) by the number of products.
        bank_slots: capsules held on the device; the others wait in host memory.
        caller_weights: shares of the model by the key of a caller, as multiples of what others
            get; all others have 1, but for the replay of golden examples, which has a tenth.
        grace_s: seconds that rows in flight may take when the engine stops.

    Raises:
        OptionError: a value is out of range.
    """

    threads: int | None = None
    tokenise_threads: int = 2
    queue_rows: int = 4096
    max_batch_rows: int | None = None
    max_batch_tokens: int | None = None
    max_padding: float = 1.1
    attention_cost: float = 1 / 1024
    bank_slots: int = 10_000
    caller_weights: Mapping[str, float] = field(default_factory=dict)
    grace_s: float = 30.0

    def __post_init__(self) -> None:
        for name in ("threads", "max_batch_rows", "max_batch_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise OptionError(f"{name} is {value}; give 1 or more, or None.", field=name)
        for name in ("tokenise_threads", "queue_rows", "max_padding"):
            value = getattr(self, name)
            if not value >= 1:
                raise OptionError(f"{name} is {value}; give 1 or more.", field=name)
        for name in ("grace_s", "attention_cost"):
            value = getattr(self, name)
            if not value >= 0:
                raise OptionError(f"{name} is {value}; give 0 or more.", field=name)
        for weight in self.caller_weights.values():
            if not 0 < weight < math.inf:
                raise OptionError(
                    f"caller_weights holds {weight}; give finite numbers above 0.",
                    field="caller_weights",
                )
        most = self.max_batch_rows or MAX_BATCH_ROWS
        if self.bank_slots < BATCHES_AT_ONCE * most:
            raise OptionError(
                f"bank_slots is {self.bank_slots}, but one batch that runs and one that is "
                f"prepared may hold {BATCHES_AT_ONCE} * {most} capsules at once; raise "
                f"bank_slots, or lower max_batch_rows to half of it.",
                field="bank_slots",
            )

    @property
    def weights(self) -> Mapping[str, float]:
        """The shares of all who do not have 1."""
        return {PROOF_CALLER: PROOF_WEIGHT, **self.caller_weights}

    def lanes(self, most: int, *, padding_free: bool) -> int:
        """How many batches run at a time, whose capsules have to be on the device together.

        Args:
            most: lanes of the executor.
            padding_free: whether it computes real positions only.
        """
        return min(most, self.bank_slots // self.batch_rows(padding_free))

    def batch_rows(self, padding_free: bool) -> int:
        """Most rows of one batch, where padding is computed or not."""
        usual = MAX_BATCH_ROWS if padding_free else MAX_BATCH_ROWS_PADDED
        return self.max_batch_rows or usual

    def limits(self, device: torch.device, *, padding_free: bool = False) -> Limits:
        """The bounds on a batch.

        Args:
            device: that it runs on.
            padding_free: whether the executor computes real positions only.
        """
        tokens = MAX_BATCH_TOKENS_PADDING_FREE if padding_free else MAX_BATCH_TOKENS
        return Limits(
            max_rows=self.batch_rows(padding_free),
            max_tokens=self.max_batch_tokens or tokens[device.type],
            max_padding=self.max_padding,
            free_padding=FREE_PADDING[device.type],
            window=WINDOW_PADDING_FREE if padding_free else WINDOW,
            padding_free=padding_free,
            attention_cost=self.attention_cost,
        )
