"""How an engine is set up."""

from dataclasses import dataclass

import torch

from capsules.errors import OptionError
from service.engine.batcher import Limits

MAX_BATCH_TOKENS = {"cpu": 2048, "cuda": 32_768}
# What a forward pass costs before its first token, in tokens.
FREE_PADDING = {"cpu": 32, "cuda": 4096}


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Options of the engine.

    Attributes:
        threads: torch's threads for one operation; None leaves torch's own choice.
        tokenise_threads: threads that render templates and tokenise.
        queue_rows: rows that may be on their way to the model, being tokenised or waiting.
        max_batch_rows: most rows of one forward pass.
        max_batch_tokens: most positions of one forward pass, padding included; None for 2048 on a
            CPU and 32,768 on CUDA.
        max_padding: most positions computed per real one, once a batch holds more than a few.
        bank_slots: capsules held on the device; the others wait in host memory.
        grace_s: seconds that rows in flight may take when the engine stops.

    Raises:
        OptionError: a value is out of range.
    """

    threads: int | None = None
    tokenise_threads: int = 2
    queue_rows: int = 4096
    max_batch_rows: int = 32
    max_batch_tokens: int | None = None
    max_padding: float = 1.1
    bank_slots: int = 10_000
    grace_s: float = 30.0

    def __post_init__(self) -> None:
        for name in ("threads", "max_batch_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise OptionError(f"{name} is {value}; give 1 or more, or None.", field=name)
        for name in ("tokenise_threads", "queue_rows", "max_batch_rows", "max_padding"):
            value = getattr(self, name)
            if not value >= 1:
                raise OptionError(f"{name} is {value}; give 1 or more.", field=name)
        if not self.grace_s >= 0:
            raise OptionError(f"grace_s is {self.grace_s}; give 0 or more.", field="grace_s")
        if self.bank_slots < self.max_batch_rows:
            raise OptionError(
                f"bank_slots is {self.bank_slots}, but a batch may hold {self.max_batch_rows} "
                "capsules at once; raise bank_slots, or lower max_batch_rows to it.",
                field="bank_slots",
            )

    def limits(self, device: torch.device) -> Limits:
        """The bounds on a batch that runs on `device`."""
        return Limits(
            max_rows=self.max_batch_rows,
            max_tokens=self.max_batch_tokens or MAX_BATCH_TOKENS[device.type],
            max_padding=self.max_padding,
            free_padding=FREE_PADDING[device.type],
        )
