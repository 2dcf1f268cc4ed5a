"""A row's answer does not depend on who shares its batch."""

import asyncio
import random

import pytest
import torch

from capsules.executors.torch import TorchExecutor
from capsules.functional import linear_head
from capsules.injection import PromptGroup, Prompts
from capsules.model import pad
from capsules.variants.registry import variant
from service.engine.records import RowRequest, Served
from tests.support.backbones import words
from tests.support.capsules import random_capsule
from tests.support.engines import TIMEOUT
from tests.support.requests import rows_for, until

TOLERANCE = 1e-4
# Labels and capsule length of each task.
SHAPES = [(2, 1), (3, 1), (77, 1), (5, 2), (150, 1), (2, 4), (17, 3), (2, 1)]


@pytest.fixture
def torch_executor(loaded):
    return TorchExecutor(loaded.backbone)


@pytest.fixture(scope="module")
def capsules(info):
    return [
        random_capsule(info, task=f"t{n}", labels=labels, length=length, seed=n)
        for n, (labels, length) in enumerate(SHAPES)
    ]


def mixed_rows(served: list[Served], count: int) -> list[RowRequest]:
    generator = random.Random(0)
    return [
        row
        for number in range(count)
        for row in rows_for(
            served[number % len(served)], words(generator.randint(1, 40), generator.randrange(200))
        )
    ]


async def test_alone_padded_and_mixed_agree(start_engine, torch_executor, capsules, observer):
    engine = await start_engine(
        executor=torch_executor, max_batch_rows=64, max_padding=10.0, max_batch_tokens=10_000
    )
    served = [engine.bank.add(capsule, version=1, digest="0" * 64) for capsule in capsules]
    rows = mixed_rows(served, 64)
    alone = [(await engine.classify([row], timeout=TIMEOUT)).rows[0] for row in rows]
    await until(lambda: observer.counts["batched"] == 64)
    assert {report.rows for report in observer.reports} == {1}
    together = (await engine.classify(rows, timeout=TIMEOUT)).rows
    await until(lambda: observer.counts["batched"] == 128)
    largest = max(observer.reports, key=lambda report: report.rows)
    assert (largest.rows, largest.tasks) == (64, 8)
    assert largest.padded_tokens > 1.5 * largest.tokens
    for row, one, other in zip(rows, alone, together, strict=True):
        assert len(one.probs) == len(other.probs) == len(row.capsule.labels)
        assert other.probs == pytest.approx(one.probs, abs=TOLERANCE)
    # The comparison would mean little if the texts made no difference.
    assert len({max(one.probs) for one in alone[:: len(SHAPES)]}) > 4


async def test_answers_are_those_of_the_capsule_run_by_hand(
    start_engine, torch_executor, capsules, loaded
):
    texts = [words(3 + 7 * number, number) for number in range(len(capsules))]
    expected = []
    for capsule, text in zip(capsules, texts, strict=True):
        tokens = pad(loaded.tokeniser.encode([text], 64), loaded.tokeniser.pad_id)
        addition = variant("addition")
        group = PromptGroup(
            addition,
            capsule.manifest.length,
            capsule.manifest.injected,
            {"capsule": capsule.tensors["capsule"].unsqueeze(0)},
        )
        features = torch_executor.features(tokens, Prompts((group,)))
        weight, bias = (capsule.tensors[f"head.{part}"].unsqueeze(0) for part in ("weight", "bias"))
        expected.append(linear_head(features, weight, bias).softmax(1)[0].tolist())
    engine = await start_engine(executor=torch_executor)
    served = [engine.bank.add(capsule, version=1, digest="0" * 64) for capsule in capsules]
    rows = [row for one, text in zip(served, texts, strict=True) for row in rows_for(one, text)]
    outcome = await engine.classify(rows, timeout=TIMEOUT)
    for answer, probs in zip(outcome.rows, expected, strict=True):
        assert answer.probs == pytest.approx(probs, abs=TOLERANCE)
        assert sum(answer.probs) == pytest.approx(1.0, abs=1e-5)


async def test_a_bank_smaller_than_its_tasks_answers_alike(start_engine, torch_executor, capsules):
    rows_of = {}
    for slots in (100, 6):
        engine = await start_engine(
            executor=torch_executor, bank_slots=slots, max_batch_rows=3, max_padding=10.0
        )
        served = [engine.bank.add(capsule, version=1, digest="0" * 64) for capsule in capsules]
        rows_of[slots] = (await engine.classify(mixed_rows(served, 40), timeout=TIMEOUT)).rows
        assert engine.bank.stats().host == max(0, len(capsules) - slots)
        await engine.stop()
    for small, large in zip(rows_of[6], rows_of[100], strict=True):
        assert small.probs == pytest.approx(large.probs, abs=TOLERANCE)


async def test_swaps_under_traffic_mix_nothing_up(start_engine, torch_executor, capsules):
    engine = await start_engine(executor=torch_executor)
    current = [engine.bank.add(capsules[0], version=1, digest="a" * 64)]
    text = words(12)
    truth = {
        version: (await engine.classify(rows_for(served, text), timeout=TIMEOUT)).rows[0].probs
        for version, capsule in enumerate(capsules)
        for served in [engine.bank.add(capsule, version=version, digest="b" * 64)]
    }
    done = asyncio.Event()

    async def ask() -> int:
        asked = 0
        while not done.is_set():
            served = current[0]
            outcome = await engine.classify(rows_for(served, text, words(3)), timeout=TIMEOUT)
            assert outcome.rows[0].probs == pytest.approx(truth[served.version], abs=TOLERANCE)
            asked += 1
        return asked

    current[0] = engine.bank.add(capsules[0], version=0, digest="a" * 64)
    clients = [asyncio.create_task(ask()) for _ in range(8)]
    for swap in range(100):
        version = swap % len(capsules)
        new = engine.bank.add(capsules[version], version=version, digest="a" * 64)
        old, current[0] = current[0], new
        engine.bank.remove(old)
        await asyncio.sleep(0.002)
    done.set()
    assert min(await asyncio.gather(*clients)) > 0
    assert torch.is_inference_mode_enabled() is False
