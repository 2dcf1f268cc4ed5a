"""What it costs to serve many tasks rather than one.

An engine for each number of tasks, all of them resident, on one executor, so that what differs is
the tasks alone. Callers send single texts of real lengths, the next one once the last is answered;
tasks are drawn uniformly, or as Zipf's law has it, a few of them much and most of them hardly.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.context import Context
from benchmarks.engine_overhead import (
    BARE,
    LONGER,
    MIXED,
    Bench as Batches,
    real_batches,
    set_up as set_up_batches,
)
from benchmarks.in_process import InProcess, in_process, shipped_engine, shipped_executor
from benchmarks.random_capsules import MIXED_LABELS, fill_bank, random_capsules
from benchmarks.result import Figure, Findings, Series, at_least, figure, series
from benchmarks.sampling import difference, interleave, ratio
from benchmarks.texts import load_texts
from capsules.backbones.base import LoadedBackbone
from capsules.backbones.load import load
from capsules.executors.base import Executor
from service.engine.records import RowRequest, Served

QUESTION = "How many texts a second are classified with 1 to 10,000 tasks at once?"

UNIFORM = "uniform"
ZIPF = "Zipf"
EXPONENT = 1.1
BATCH = "one batch of mixed tasks"
TASKS_GOAL = 0.97
BATCH_GOAL = 0.97


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    Attributes:
        tasks: numbers of tasks, ascending, the first one 1.
        batch_tasks: tasks of a single batch that is compared with the bare backbone.
        waiting: texts that the batcher picks such a batch from.
        batch_rounds: of that.
        concurrency: callers at a time.
        requests: of one round.
        rounds: of each number of tasks.
    """

    tasks: tuple[int, ...]
    batch_tasks: int
    waiting: int
    batch_rounds: int
    concurrency: int
    requests: int
    rounds: int


FULL = Sizes(
    tasks=(1, 10, 100, 1_000, 10_000),
    batch_tasks=1_000,
    waiting=64,
    batch_rounds=60,
    concurrency=64,
    requests=640,
    rounds=12,
)
QUICK = Sizes(
    tasks=(1, 40), batch_tasks=40, waiting=16, batch_rounds=2, concurrency=4, requests=12, rounds=2
)


def measure(context: Context) -> Findings:
    """Answer the question.

    Raises:
        BenchmarkError: a row was not answered.
    """
    sizes = QUICK if context.quick else FULL
    loaded = load(context.backbone, device=context.device)
    executor = shipped_executor(loaded, context.backbone, context.executor)
    texts = load_texts(max(sizes.requests, sizes.batch_rounds * sizes.waiting), context.data)
    batch = compare_batches(context, sizes, loaded, executor, texts.texts)
    with set_up(context, sizes, loaded, executor) as bench:
        context.tell(f"{sizes.concurrency} at a time: {sizes.rounds} rounds")
        rates = bench.compare(texts.texts[: sizes.requests], sizes)
    return Findings(
        options={
            "backbone": loaded.info.id,
            "device": str(executor.device),
            "executor": executor.name,
            "labels": list(MIXED_LABELS),
            "concurrency": sizes.concurrency,
            "requests": sizes.requests,
            "rounds": sizes.rounds,
            "exponent": EXPONENT,
            "tasks of the batch": sizes.batch_tasks,
            "rounds of the batch": sizes.batch_rounds,
            "texts": texts.source,
        },
        figures=(*rate_figures(rates), *batch_figures(batch)),
        series=(*rate_series(rates), *batch_series(batch)),
        notes=(
            "Every number of tasks has an engine with as many capsules in its bank and no more; all "
            "engines use one executor, one after the other. Each request holds one text.",
            f"Under `{ZIPF}` the task of rank r is drawn r ** -{EXPONENT} as often as the first.",
            f"`{BATCH}` is what the batcher picks from {sizes.waiting} waiting texts: all that "
            "the model thread does for it, against the same executor on the same rows without "
            "capsules, both in one lane. A capsule takes a position of its row, which the bare "
            "backbone on one more token has as well.",
        ),
    )


def compare_batches(
    context: Context,
    sizes: Sizes,
    loaded: LoadedBackbone,
    executor: Executor,
    texts: Sequence[str],
) -> Mapping[str, Sequence[float]]:
    """Milliseconds of single batches, without capsules and with one for each row."""
    context.tell(f"{BATCH}: {sizes.batch_rounds} rounds")
    waiting = texts[: sizes.batch_rounds * sizes.waiting]
    bench: Batches
    with set_up_batches(loaded, executor, sizes.batch_tasks) as bench:
        took = bench.compare(real_batches(waiting, sizes.waiting, loaded, executor))
    return {side: took[side] for side in (BARE, LONGER, MIXED)}


@dataclass(frozen=True, slots=True)
class Engines:
    """An engine for each number of tasks.

    Attributes:
        started: the engines.
        served: the capsules of each.
    """

    started: Mapping[int, InProcess]
    served: Mapping[int, Sequence[Served]]

    def compare(self, texts: Sequence[str], sizes: Sizes) -> dict[tuple[int, str], list[float]]:
        """Texts a second of each number of tasks and way to draw them."""
        loads = {
            name: (count, how)
            for count in sizes.tasks
            for how in (UNIFORM, ZIPF)
            if count > 1 or how == UNIFORM
            for name in (f"{how}, {count}",)
        }
        sides = {
            name: partial(self.round, count, how, texts, sizes.concurrency)
            for name, (count, how) in loads.items()
        }
        measured = interleave(sides, sizes.rounds)
        return {loads[name]: rates for name, rates in measured.items()}

    def round(
        self, count: int, how: str, texts: Sequence[str], concurrency: int, turn: int
    ) -> float:
        """Texts a second of one round."""
        served = self.served[count]
        rows = [
            RowRequest(served[number], {"text": text})
            for number, text in zip(draw(count, how, len(texts), turn), texts, strict=True)
        ]
        return len(rows) / self.started[count].send(rows, concurrency).seconds


def draw(tasks: int, how: str, rows: int, seed: int) -> list[int]:
    """The task of each row.

    Args:
        tasks: how many there are.
        how: `UNIFORM` or `ZIPF`.
        rows: how many to draw.
        seed: of this round.
    """
    random = np.random.default_rng(seed)
    exponent = EXPONENT if how == ZIPF else 0.0
    weights = np.arange(1, tasks + 1) ** -exponent
    drawn: list[int] = random.choice(tasks, size=rows, p=weights / weights.sum()).tolist()
    return drawn


@contextmanager
def set_up(
    context: Context, sizes: Sizes, loaded: LoadedBackbone, executor: Executor
) -> Iterator[Engines]:
    """Fill and start the engines, and stop them at the end."""
    started = {}
    served = {}
    with ExitStack() as stack:
        for count in sizes.tasks:
            context.tell(f"loading {count:,} capsules")
            engine = shipped_engine(loaded, executor)
            served[count] = fill_bank(engine.bank, random_capsules(loaded.info, count))
            started[count] = stack.enter_context(in_process(engine))
        yield Engines(started, served)


def named(count: int) -> str:
    """A number of tasks in words."""
    return "1 task" if count == 1 else f"{count:,} tasks"


def rate_figures(rates: Mapping[tuple[int, str], Sequence[float]]) -> Iterator[Figure]:
    """Each number of tasks against one of them, the largest number first."""
    most = max(count for count, _ in rates)
    for (count, how), own in sorted(rates.items(), key=lambda item: -item[0][0]):
        if count > 1:
            yield figure(
                f"{named(count)}, {how} / {named(1)}: texts a second",
                "ratio",
                ratio(own, rates[1, UNIFORM]),
                at_least(TASKS_GOAL) if (count, how) == (most, UNIFORM) else None,
            )


def rate_series(rates: Mapping[tuple[int, str], Sequence[float]]) -> Iterator[Series]:
    """What each number of tasks reached."""
    for (count, how), own in rates.items():
        yield series(named(count), how, "texts/s", own)


def batch_figures(took: Mapping[str, Sequence[float]]) -> Iterator[Figure]:
    """A batch against the bare backbone."""
    yield figure(
        f"{BATCH}: bare / mixed", "ratio", ratio(took[BARE], took[MIXED]), at_least(BATCH_GOAL)
    )
    yield figure(
        f"{BATCH}: bare with one more token / mixed", "ratio", ratio(took[LONGER], took[MIXED])
    )
    yield figure(f"{BATCH}: mixed above bare", "ms", difference(took[MIXED], took[BARE]))
    yield figure(
        f"{BATCH}: mixed above bare with one more token",
        "ms",
        difference(took[MIXED], took[LONGER]),
    )


def batch_series(took: Mapping[str, Sequence[float]]) -> Iterator[Series]:
    """Milliseconds of each side."""
    for side, own in took.items():
        yield series(BATCH, side, "ms", own)
