"""A tiny backbone for the whole run, and engines on it."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any, Protocol

import pytest
from structlog.testing import capture_logs

from capsules.backbones.base import BackboneInfo, LoadedBackbone
from capsules.executors.base import Executor
from service.engine.config import EngineConfig
from service.engine.engine import Engine
from service.engine.observer import EngineObserver
from tests.support.backbones import tiny_bert
from tests.support.executors import RecordingExecutor
from tests.support.observers import CountingObserver


@pytest.fixture(scope="session")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedBackbone:
    return tiny_bert(tmp_path_factory.mktemp("tiny-bert"))


@pytest.fixture(scope="session")
def info(loaded: LoadedBackbone) -> BackboneInfo:
    return loaded.info


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Errors that tests provoke are not printed, whose tracebacks take longer than the tests."""
    with capture_logs():
        yield


@pytest.fixture
def executor(info: BackboneInfo) -> RecordingExecutor:
    return RecordingExecutor(info.hidden_size)


@pytest.fixture
def observer() -> CountingObserver:
    return CountingObserver()


class StartEngine(Protocol):
    async def __call__(
        self,
        *,
        executor: Executor | None = None,
        observer: EngineObserver | None = None,
        **options: Any,
    ) -> Engine: ...


@pytest.fixture
async def start_engine(
    loaded: LoadedBackbone, executor: RecordingExecutor, observer: CountingObserver
) -> AsyncIterator[StartEngine]:
    """Starts engines, by default on the recording executor, and stops them after the test."""
    async with AsyncExitStack() as stack:

        async def start(**options: Any) -> Engine:
            chosen = options.pop("executor", None) or executor
            watching = options.pop("observer", None) or observer
            config = EngineConfig(**{"threads": 1, "grace_s": 5.0, **options})
            engine = Engine(loaded, chosen, config, watching)
            stack.push_async_callback(engine.stop)
            # A test that fails while its executor waits must not wait for the grace.
            stack.callback(executor.gate.set)
            await engine.start()
            executor.batches.clear()
            executor.inside.clear()
            return engine

        yield start
