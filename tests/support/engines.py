"""Engines under test: capsules to tell apart, a model kept busy, and what rest looks like."""

import asyncio
from collections.abc import Sequence

from service.engine.engine import Engine
from service.engine.records import Outcome, RowAnswer, Served
from service.errors import ServiceError
from tests.support.capsules import constant_capsule
from tests.support.executors import RecordingExecutor
from tests.support.requests import rows_for, until

TIMEOUT = 10.0


def constant(engine: Engine, share: float, *, task: str = "task", length: int = 1) -> Served:
    """A capsule in the engine's bank whose first probability is always `share`."""
    capsule = constant_capsule(engine.loaded.info, [share, 1 - share], task=task, length=length)
    return engine.bank.add(capsule, version=1, digest="0" * 64)


def shares(answers: Sequence[RowAnswer | ServiceError]) -> list[float | str]:
    """The first probability of each row, or its error's code."""
    return [
        answer.code if isinstance(answer, ServiceError) else round(answer.probs[0], 4)
        for answer in answers
    ]


async def occupied(
    engine: Engine, executor: RecordingExecutor, capsule: Served
) -> asyncio.Task[Outcome]:
    """A request of one row that keeps the model busy until the executor's gate is opened."""
    executor.gate.clear()
    running = asyncio.create_task(engine.classify(rows_for(capsule, "w1"), timeout=TIMEOUT))
    await until(executor.inside.is_set)
    return running


def assert_at_rest(engine: Engine) -> None:
    """Nothing waits, nothing is reserved, nothing is pinned, nobody is waited for."""
    assert engine.queue_depth == 0
    assert engine.queue.reserved == 0
    assert engine.bank.stats().pinned == 0
    assert engine.open == set()
