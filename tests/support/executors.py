"""Executors for tests: one that records, and can be made to wait or fail."""

import threading
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

from capsules.core import Reading, TokenBatch
from capsules.executors.base import Executor, Pass
from capsules.injection import Prompts

PATIENCE_S = 20.0


class RecordingExecutor(Executor):
    """Gives the same features for every row, and keeps what it was asked.

    Attributes:
        batches: the token ids of every batch, a row a tuple, padding left out.
        threads: names of the threads that called.
        gate: while it is cleared, batches wait inside.
        inside: set once a batch has come in.
        before: called with each batch's rows; may raise, or change the features it returns.
    """

    name: ClassVar[str] = "recording"
    padding_free: ClassVar[bool] = False

    def __init__(self, hidden_size: int) -> None:
        self.hidden_size = hidden_size
        self.batches: list[list[tuple[int, ...]]] = []
        self.threads: set[str] = set()
        self.gate = threading.Event()
        self.gate.set()
        self.inside = threading.Event()
        self.before: Callable[[Tensor], Tensor] = lambda features: features

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def prepare(self, tokens: TokenBatch, prompts: Prompts, reading: Reading | None = None) -> Pass:
        assert reading is None, "it answers with heads"
        return lambda: self.run(tokens)

    def run(self, tokens: TokenBatch) -> Tensor:
        rows = zip(tokens.input_ids.tolist(), tokens.attention_mask.tolist(), strict=True)
        self.batches.append(
            [tuple(i for i, real in zip(ids, mask, strict=True) if real) for ids, mask in rows]
        )
        self.threads.add(threading.current_thread().name)
        self.inside.set()
        assert self.gate.wait(PATIENCE_S), "nobody opened the gate"
        return self.before(torch.ones(len(tokens), self.hidden_size))
