"""Executors for tests: ones that record, and can be made to wait or fail."""

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
        threads: names of the threads that ran batches.
        prepared: how many rows each batch had that was prepared, whether it ran or not.
        gate: while it is cleared, batches wait inside.
        inside: set when a batch comes in.
        before: called with each batch's rows; may raise, or change the features it returns.
        preparing: called with the tokens of each batch that is prepared; may raise.
    """

    name: str = "recording"
    padding_free: ClassVar[bool] = False

    def __init__(self, hidden_size: int) -> None:
        self.hidden_size = hidden_size
        self.batches: list[list[tuple[int, ...]]] = []
        self.threads: set[str] = set()
        self.prepared: list[int] = []
        self.gate = threading.Event()
        self.gate.set()
        self.inside = threading.Event()
        self.before: Callable[[Tensor], Tensor] = lambda features: features
        self.preparing: Callable[[TokenBatch], None] = lambda tokens: None

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def prepare(
        self,
        tokens: TokenBatch,
        prompts: Prompts,
        reading: Reading | None = None,
        *,
        alone: bool = True,
    ) -> Pass:
        assert reading is None, "it answers with heads"
        self.preparing(tokens)
        self.prepared.append(len(tokens))
        return lambda: self.run(tokens, prompts)

    def run(self, tokens: TokenBatch, prompts: Prompts) -> Tensor:
        rows = zip(tokens.input_ids.tolist(), tokens.attention_mask.tolist(), strict=True)
        self.batches.append(
            [tuple(i for i, real in zip(ids, mask, strict=True) if real) for ids, mask in rows]
        )
        self.threads.add(threading.current_thread().name)
        self.inside.set()
        assert self.gate.wait(PATIENCE_S), "nobody opened the gate"
        return self.before(self.read(tokens, prompts))

    def read(self, tokens: TokenBatch, prompts: Prompts) -> Tensor:
        """The features [B, D]."""
        return torch.ones(len(tokens), self.hidden_size)


class MarkingExecutor(RecordingExecutor):
    """Features that tell which capsule and which text a row was run with.

    Feature 0 is the first element of the row's `capsule` tensor, if it has one, as it is when the
    pass runs, and feature 1 the number of its tokens; see `tests.support.engines.marked`.
    """

    def read(self, tokens: TokenBatch, prompts: Prompts) -> Tensor:
        features = torch.zeros(len(tokens), self.hidden_size)
        for group in prompts.groups:
            rows = slice(None) if group.rows is None else group.rows
            if "capsule" in group.tensors:
                features[rows, 0] = group.tensors["capsule"][:, 0, 0, 0]
        features[:, 1] = tokens.attention_mask.sum(1)
        return features


class PackedMarkingExecutor(MarkingExecutor):
    """The same where padding is free."""

    padding_free: ClassVar[bool] = True
