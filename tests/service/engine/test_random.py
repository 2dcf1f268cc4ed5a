"""Random traffic through the real queue, batcher, bank and thread."""

import asyncio
import random
from collections import Counter

from hypothesis import HealthCheck, given, settings, strategies as st

from capsules.backbones.base import LoadedBackbone
from service.engine.config import EngineConfig
from service.engine.engine import Engine
from service.engine.records import RowAnswer, RowRequest, Served
from service.errors import DeadlineExceeded, Unavailable
from tests.support.backbones import words
from tests.support.engines import TIMEOUT, assert_at_rest, constant
from tests.support.executors import RecordingExecutor
from tests.support.observers import CountingObserver

TASKS = 12
LENGTHS = [0] * 5 + list(range(1, 50))


class Traffic:
    """Clients that ask, wait, give up and go away, while capsules are swapped under them."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self.engine = engine
        self.random = random.Random(seed)
        self.serial = 0
        self.current = [self.fresh(task) for task in range(TASKS)]
        self.seen: Counter[str] = Counter()

    def fresh(self, task: int) -> tuple[Served, float]:
        """A new version of a task, with an answer that no other version gives."""
        self.serial += 1
        share = self.serial / 10_000
        served = constant(self.engine, share, task=f"t{task}", length=1 + task % 3)
        return served, share

    async def client(self) -> None:
        for _ in range(self.random.randint(1, 6)):
            chosen = self.random.choices(self.current, k=self.random.randint(1, 12))
            rows = [
                RowRequest(served, {"text": words(self.random.choice(LENGTHS))})
                for served, _ in chosen
            ]
            timeout = self.random.choice([TIMEOUT, TIMEOUT, TIMEOUT, 0.0, 0.003])
            call = asyncio.create_task(self.engine.classify(rows, timeout=timeout))
            if self.random.random() < 0.2:
                await asyncio.sleep(self.random.random() * 0.005)
                call.cancel()
            try:
                answers = (await call).rows
            except (asyncio.CancelledError, DeadlineExceeded, Unavailable) as error:
                self.seen[type(error).__name__] += 1
                await asyncio.sleep(0.002)
                continue
            self.check(rows, [share for _, share in chosen], answers)

    def check(self, rows, expected, answers) -> None:
        assert len(answers) == len(rows)
        for row, share, answer in zip(rows, expected, answers, strict=True):
            if isinstance(answer, RowAnswer):
                assert abs(answer.probs[0] - share) < 1e-6
                self.seen["answered"] += 1
            else:
                # A task starts a step after it was made, so its capsule may be gone by then.
                failed = ("inference_failed", "version_not_found")
                assert answer.code in (failed if row.inputs["text"] else ("empty_text", failed[1]))
                self.seen[answer.code] += 1

    async def swaps(self) -> None:
        for _ in range(30):
            task = self.random.randrange(TASKS)
            old, self.current[task] = self.current[task][0], self.fresh(task)
            self.engine.bank.remove(old)
            await asyncio.sleep(0.001)


class Flaky:
    """Fails every fourth batch."""

    def __init__(self) -> None:
        self.batches = 0

    def __call__(self, features):
        self.batches += 1
        if self.batches % 4 == 0:
            raise RuntimeError("now and then")
        return features


async def run(loaded: LoadedBackbone, seed: int, options: dict[str, int]) -> Counter[str]:
    executor, observer = RecordingExecutor(loaded.info.hidden_size), CountingObserver()
    config = EngineConfig(max_batch_rows=6, max_batch_tokens=200, grace_s=5.0, **options)
    engine = Engine(loaded, executor, config, observer)
    await engine.start()
    executor.before = Flaky()
    executor.batches.clear()
    traffic = Traffic(engine, seed)
    await asyncio.gather(traffic.swaps(), *(traffic.client() for _ in range(12)))
    assert engine.healthy
    await engine.stop()
    assert_at_rest(engine)
    assert sum(map(len, executor.batches)) == observer.counts["batched"]
    assert all(len(batch) == 1 or padded(batch) <= 200 for batch in executor.batches)
    for served, _ in traffic.current:
        engine.bank.remove(served)
    stats = engine.bank.stats()
    assert (stats.resident, stats.host, stats.host_bytes) == (0, 0, 0)
    return traffic.seen


def padded(batch: list[tuple[int, ...]]) -> int:
    return len(batch) * max(map(len, batch))


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    seed=st.integers(0, 2**32),
    queue_rows=st.sampled_from([15, 100, 4096]),
    bank_slots=st.sampled_from([6, 8, 100]),
)
def test_every_row_gets_one_answer_of_its_own_capsule_or_an_error(
    loaded, seed, queue_rows, bank_slots
):
    asyncio.run(run(loaded, seed, {"queue_rows": queue_rows, "bank_slots": bank_slots}))


async def test_the_traffic_is_worth_running(loaded):
    """Every way for a row to end comes up, so that the test above has seen them all."""
    seen: Counter[str] = Counter()
    for seed in range(5):
        seen += await run(loaded, seed, {"queue_rows": 30, "bank_slots": 6})
    assert seen.keys() >= {"answered", "inference_failed", "empty_text"}
    assert seen.keys() >= {"CancelledError", "DeadlineExceeded", "Unavailable"}
