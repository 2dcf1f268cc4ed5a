"""Random traffic through the real queue, batcher, bank and threads."""

import asyncio
import random
from collections import Counter
from typing import Any

from hypothesis import given, settings, strategies as st

from capsules.backbones.base import LoadedBackbone
from service.engine.config import EngineConfig
from service.engine.engine import Engine
from service.engine.records import RowAnswer, RowRequest, Served
from service.errors import DeadlineExceeded, TooManyRequests, Unavailable
from tests.support.backbones import words
from tests.support.engines import TIMEOUT, assert_at_rest, marked, marked_share
from tests.support.executors import MarkingExecutor, PackedMarkingExecutor
from tests.support.observers import CountingObserver

TASKS = 12
ROWS, TOKENS = 6, 200
LENGTHS = [0] * 5 + list(range(1, 50))
VARIANTS = [
    ("addition", 1),
    ("addition", 3),
    ("prepending", 1),
    ("extraction", 1),
    ("projection", 2),
    ("task-only", 1),
    ("instance-only", 1),
]
CALLERS = ["", "a", "b", "heavy"]
GONE = (asyncio.CancelledError, DeadlineExceeded, TooManyRequests, Unavailable)


class Traffic:
    """Clients that ask, wait, give up and go away, while capsules are swapped under them."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self.engine = engine
        self.random = random.Random(seed)
        self.serial = 0
        self.current = [self.fresh(task) for task in range(TASKS)]
        self.seen: Counter[str] = Counter()
        self.rows = 0

    def fresh(self, task: int) -> Served:
        """A new version of a task, with an answer that no other version gives."""
        self.serial += 1
        variant, length = VARIANTS[task % len(VARIANTS)]
        return marked(self.engine, self.serial, task=f"t{task}", length=length, variant=variant)

    async def client(self, caller: str) -> None:
        for _ in range(self.random.randint(1, 6)):
            rows = [
                RowRequest(served, {"text": words(self.random.choice(LENGTHS))})
                for served in self.random.choices(self.current, k=self.random.randint(1, 12))
            ]
            timeout = self.random.choice([TIMEOUT, TIMEOUT, TIMEOUT, 0.0, 0.003])
            call = asyncio.create_task(self.engine.classify(rows, timeout=timeout, caller=caller))
            if self.random.random() < 0.2:
                await asyncio.sleep(self.random.random() * 0.005)
                call.cancel()
            try:
                answers = (await call).rows
            except GONE as error:
                self.seen[type(error).__name__] += 1
                await asyncio.sleep(0.002)
                continue
            self.check(rows, answers)

    def check(self, rows, answers) -> None:
        assert len(answers) == len(rows)
        for row, answer in zip(rows, answers, strict=True):
            if isinstance(answer, RowAnswer):
                assert answer.input_tokens == len(row.inputs["text"].split()) + 2
                share = marked_share(row.capsule.version, answer.input_tokens)
                assert abs(answer.probs[0] - share) < 1e-4
                self.seen["answered"] += 1
            else:
                # A task starts a step after it was made, so its capsule may be gone by then.
                failed = ("inference_failed", "version_not_found")
                assert answer.code in (failed if row.inputs["text"] else ("empty_text", failed[1]))
                self.seen[answer.code] += 1

    async def swaps(self) -> None:
        for _ in range(30):
            task = self.random.randrange(TASKS)
            old, self.current[task] = self.current[task], self.fresh(task)
            self.engine.bank.remove(old)
            await asyncio.sleep(0.001)


class Flaky:
    """Fails every so many times."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.times = 0

    def __call__(self, given):
        self.times += 1
        if self.times % self.every == 0:
            raise RuntimeError("now and then")
        return given


async def run(
    loaded: LoadedBackbone, seed: int, *, padding_free: bool = False, lanes: int = 1, **options: Any
) -> Counter[str]:
    kind = PackedMarkingExecutor if padding_free else MarkingExecutor
    executor, observer = kind(loaded.info.hidden_size), CountingObserver()
    executor.lanes = lanes
    config = EngineConfig(
        threads=1,
        max_batch_rows=ROWS,
        max_batch_tokens=TOKENS,
        caller_weights={"heavy": 3.0},
        grace_s=5.0,
        **options,
    )
    engine = Engine(loaded, executor, config, observer)
    await engine.start()
    executor.before, executor.preparing = Flaky(5), Flaky(7)
    executor.batches.clear()
    traffic = Traffic(engine, seed)
    await asyncio.gather(traffic.swaps(), *(traffic.client(CALLERS[n % 4]) for n in range(12)))
    assert engine.healthy
    await engine.stop()
    assert_at_rest(engine)
    check_batches(executor, observer)
    traffic.seen["ahead"] = sum(report.ahead for report in observer.reports)
    for served in traffic.current:
        engine.bank.remove(served)
    stats = engine.bank.stats()
    assert (stats.resident, stats.host, stats.host_bytes) == (0, 0, 0)
    return traffic.seen


def check_batches(executor: MarkingExecutor, observer: CountingObserver) -> None:
    assert executor.threads <= {"model", *(f"model-{n}" for n in range(2, executor.lanes + 1))}
    ran = sum(map(len, executor.batches))
    assert observer.counts["batched"] <= ran
    assert ran <= observer.counts["batched"] + observer.counts["failed"]
    for batch in executor.batches:
        lengths = [len(row) for row in batch]
        computed = sum(lengths) if executor.padding_free else len(batch) * max(lengths)
        assert len(batch) == 1 or (len(batch) <= ROWS and computed <= TOKENS)


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    padding_free=st.booleans(),
    lanes=st.integers(1, 3),
    queue_rows=st.sampled_from([15, 100, 4096]),
    bank_slots=st.sampled_from([12, 16, 100]),
)
def test_every_row_gets_one_answer_of_its_own_capsule_or_an_error(
    loaded, seed, padding_free, lanes, queue_rows, bank_slots
):
    options = {"queue_rows": queue_rows, "bank_slots": bank_slots}
    asyncio.run(run(loaded, seed, padding_free=padding_free, lanes=lanes, **options))


async def test_the_traffic_is_worth_running(loaded):
    """Every way for a row to end comes up, so that the test above has seen them all."""
    seen: Counter[str] = Counter()
    for seed in range(6):
        seen += await run(loaded, seed, padding_free=seed % 2 == 0, queue_rows=40, bank_slots=12)
    assert seen.keys() >= {"answered", "inference_failed", "empty_text", "ahead"}
    assert seen.keys() >= {"CancelledError", "DeadlineExceeded", "Unavailable", "TooManyRequests"}


async def test_a_flood_does_not_keep_others_waiting(loaded):
    """While thousands of one caller's rows wait, another's lone rows are answered in turn."""
    executor, observer = MarkingExecutor(loaded.info.hidden_size), CountingObserver()
    config = EngineConfig(threads=1, max_batch_rows=4, queue_rows=4096)
    engine = Engine(loaded, executor, config, observer)
    await engine.start()
    served = marked(engine, 1)
    flood = [RowRequest(served, {"text": words(5 + n % 20)}) for n in range(3000)]
    waiting = asyncio.create_task(engine.classify(flood, timeout=60.0, caller="flood"))
    lone = [RowRequest(served, {"text": words(40)})]
    batches: list[int] = []
    while not waiting.done() and len(batches) < 20:
        before = len(executor.batches)
        await engine.classify(lone, timeout=TIMEOUT, caller="other")
        batches.append(len(executor.batches) - before)
    assert len(batches) == 20
    assert not waiting.done()
    # One may run and one be prepared; the event loop may come round a few batches late.
    assert sorted(batches)[len(batches) // 2] <= 6
    await waiting
    await engine.stop()
    assert_at_rest(engine)
