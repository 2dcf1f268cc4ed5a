"""`python -m benchmarks.front.ours SIDE`: our server without a model; the rest is as shipped.

Settings come from the environment, as always.
"""

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from capsules.backbones.base import LoadedBackbone
from capsules.core import Reading, TokenBatch
from capsules.executors.base import Executor, Pass
from capsules.injection import Prompts
from service.engine.executors import ExecutorConfig
from service.engine.records import Outcome, RowAnswer, RowRequest, Timings
from service.metrics import Metrics
from service.server import serve
from service.settings import Settings
from service.startup import Assemble, assemble
from service.state import Warm


class NullExecutor(Executor):
    """Gives features of zeros at once, so that the rest of the server is all there is."""

    name = "null"
    padding_free: ClassVar[bool] = True

    def __init__(self, hidden_size: int) -> None:
        self.hidden_size = hidden_size

    @property
    def device(self) -> torch.device:
        """The CPU."""
        return torch.device("cpu")

    def prepare(
        self,
        tokens: TokenBatch,
        prompts: Prompts,
        reading: Reading | None = None,
        *,
        alone: bool = True,
    ) -> Pass:
        """See :class:`capsules.executors.base.Executor`."""
        rows = len(tokens) if reading is None else len(reading.paths)

        def run() -> Tensor:
            return torch.zeros(rows, self.hidden_size)

        return run


class NullEngine:
    """Answers every row at once, each label as probable as the next."""

    healthy = True

    async def classify(
        self,
        rows: Sequence[RowRequest],
        *,
        timeout: float,  # noqa: ASYNC109 - the engine's interface
        caller: str = "",
    ) -> Outcome:
        """See :class:`service.state.Classifier`."""
        return Outcome(
            rows=tuple(map(uniform, rows)),
            timings=Timings(tokenise=0.0, queue=0.0, forward=0.0),
        )


def uniform(row: RowRequest) -> RowAnswer:
    """An answer that says nothing."""
    labels = len(row.capsule.labels)
    return RowAnswer(probs=(1 / labels,) * labels, input_tokens=10, truncated=False)


async def null_executor(loaded: LoadedBackbone, config: ExecutorConfig) -> Executor:
    """The null executor of a backbone, whatever is configured."""
    return NullExecutor(loaded.info.hidden_size)


without_model = partial(assemble, executor_for=null_executor)
"""Assembles a server whose executor is null: it tokenises, batches, gathers and scores."""


@asynccontextmanager
async def without_engine(settings: Settings, metrics: Metrics) -> AsyncIterator[Warm]:
    """Assembles a server that has nothing behind its HTTP layer."""
    async with without_model(settings, metrics) as warm:
        yield replace(warm, engine=NullEngine())


SIDES: dict[str, Assemble] = {"null_executor": without_model, "null_engine": without_engine}

if __name__ == "__main__":
    sys.exit(serve(Settings(), SIDES[sys.argv[1]]))
