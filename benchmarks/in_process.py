"""The executor and the engine as a server has them, called in this process."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import uvloop

from benchmarks.errors import BenchmarkError
from benchmarks.server import GRAPHS
from capsules.backbones.base import LoadedBackbone
from capsules.executors.base import Executor
from service import startup
from service.engine.config import EngineConfig
from service.engine.engine import Engine
from service.engine.executors import Choice, ExecutorConfig, Quantization, open_executor
from service.engine.observer import SilentObserver
from service.engine.records import RowAnswer, RowRequest, Served
from service.settings import Settings

TIMEOUT_S = 600.0


def shipped_executor(
    loaded: LoadedBackbone,
    backbone: str,
    choice: Choice,
    quantization: Quantization = "none",
) -> Executor:
    """The executor that a server makes of a backbone; its graph is exported once and kept.

    Args:
        loaded: the backbone, for this executor alone.
        backbone: as it was loaded.
        choice: of the executor, as the server's setting.
        quantization: likewise.

    Raises:
        OptionError: it cannot be run as asked for.
    """
    config = ExecutorConfig(
        backbone=backbone, graphs=GRAPHS, choice=choice, quantization=quantization
    )
    return asyncio.run(open_executor(loaded, config))


def engine_config(executor: Executor) -> EngineConfig:
    """What a server sets its engine up with where no setting is made, here or in the environment."""
    return startup.engine_config(Settings.model_construct(), executor)


def shipped_engine(loaded: LoadedBackbone, executor: Executor) -> Engine:
    """An engine that is not started, with a server's limits and threads, and an empty bank."""
    return Engine(loaded, executor, engine_config(executor), SilentObserver())


@contextmanager
def torch_threads(executor: Executor) -> Iterator[None]:
    """Give torch the threads here that it has beside an executor in a server, for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(engine_config(executor).threads or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of rows that were sent through an engine.

    Attributes:
        seconds: from the first to the last.
        latencies_ms: of each, in the order in which they were answered.
    """

    seconds: float
    latencies_ms: tuple[float, ...]


class InProcess:
    """A started engine, and the event loop that it is called on: the one that a server has."""

    def __init__(self, engine: Engine) -> None:
        """Start it.

        Args:
            engine: that has not been started.
        """
        self.engine = engine
        self.runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self.runner.run(engine.start())

    def send(self, rows: Sequence[RowRequest], concurrency: int = 1) -> Sent:
        """Send rows through the engine, one a request, from so many callers.

        Raises:
            BenchmarkError: one was not answered.
        """
        started = time.perf_counter()
        latencies = self.runner.run(self.send_all(rows, concurrency))
        return Sent(time.perf_counter() - started, tuple(latencies))

    async def send_all(self, rows: Sequence[RowRequest], concurrency: int) -> list[float]:
        """Milliseconds of each row, in the order in which they were answered."""
        todo = iter(rows)
        latencies: list[float] = []

        async def caller() -> None:
            for row in todo:
                started = time.perf_counter()
                await self.classify(row)
                latencies.append((time.perf_counter() - started) * 1000)

        await asyncio.gather(*(caller() for _ in range(concurrency)))
        return latencies

    async def classify(self, row: RowRequest) -> None:
        """Send one row through the engine.

        Raises:
            BenchmarkError: it was not answered.
        """
        (answer,) = (await self.engine.classify([row], timeout=TIMEOUT_S)).rows
        if not isinstance(answer, RowAnswer):
            raise BenchmarkError(f"A row got no answer, but {answer!r}.")

    def stop(self) -> None:
        """End the engine."""
        self.runner.run(self.engine.stop())
        self.runner.close()


@contextmanager
def in_process(engine: Engine) -> Iterator[InProcess]:
    """Start an engine, and stop it at the end."""
    before = torch.get_num_threads()
    started = InProcess(engine)
    try:
        yield started
    finally:
        started.stop()
        torch.set_num_threads(before)  # the model thread set it for the whole process


def spread(texts: Sequence[str], served: Sequence[Served]) -> list[RowRequest]:
    """Each text with a task, which they take in turn."""
    return [
        RowRequest(served[number % len(served)], {"text": text})
        for number, text in enumerate(texts)
    ]
