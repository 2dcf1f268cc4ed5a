"""Engines under test: capsules to tell apart, a model kept busy, and what rest looks like."""

import asyncio
import math
from collections.abc import Sequence

import torch

from capsules.artefact.file import Capsule
from service.engine.engine import Engine
from service.engine.records import Outcome, RowAnswer, Served
from service.errors import ServiceError
from tests.support.capsules import constant_capsule, random_capsule
from tests.support.executors import RecordingExecutor
from tests.support.requests import rows_for, until

TIMEOUT = 10.0
PER_TOKEN = 0.02


def constant(engine: Engine, share: float, *, task: str = "task", length: int = 1) -> Served:
    """A capsule in the engine's bank whose first probability is always `share`."""
    capsule = constant_capsule(engine.loaded.info, [share, 1 - share], task=task, length=length)
    return engine.bank.add(capsule, version=1, digest="0" * 64)


def marked(
    engine: Engine, number: int, *, task: str = "task", length: int = 1, variant: str = "addition"
) -> Served:
    """A capsule in the engine's bank that answers as :func:`marked_share` says.

    On a `MarkingExecutor`, and only for a row that is run with this capsule, its own head and as
    many tokens. One that learns no vector, `instance-only`, is told by its head alone.
    """
    info = engine.loaded.info
    drawn = random_capsule(info, task=task, labels=2, length=length, variant=variant)
    tensors = {name: tensor.clone() for name, tensor in drawn.tensors.items()}
    mark = 0.0
    if "capsule" in tensors:
        mark = float(number)
        tensors["capsule"][0, 0, 0] = mark
    weight = torch.zeros(2, info.hidden_size)
    weight[0, 0], weight[1, 1] = 1.0, PER_TOKEN
    share = own_share(number)
    tensors["head.weight"] = weight
    tensors["head.bias"] = torch.tensor([math.log(share) - mark, math.log(1 - share)])
    return engine.bank.add(Capsule(drawn.manifest, tensors), version=number, digest="0" * 64)


def own_share(number: int) -> float:
    """What tells one marked capsule from another, beside its mark."""
    return 0.2 + 0.6 * (number % 997) / 997


def marked_share(number: int, tokens: int) -> float:
    """The first probability that a marked capsule gives a text of so many tokens."""
    share = own_share(number)
    return share / (share + (1 - share) * math.exp(PER_TOKEN * tokens))


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
    executor.inside.clear()
    running = asyncio.create_task(engine.classify(rows_for(capsule, "w1"), timeout=TIMEOUT))
    await until(executor.inside.is_set)
    return running


def assert_at_rest(engine: Engine) -> None:
    """Nothing waits, nothing is held, nothing is pinned or leased, nobody is waited for."""
    assert engine.queue_depth == 0
    assert engine.queue.reserved == 0
    assert engine.queue.held == {}
    assert engine.queue.waiting.positions == 0
    assert sum(entry.leases for entry in engine.bank.entries.values()) == 0
    assert engine.bank.stats().pinned == 0
    assert engine.open == set()
