"""What the engine adds to a forward pass when each row has a task of its own.

Side by side, on the same padded batch and with the same executor: the bare backbone, the bare
backbone on one more token (a capsule takes a position of the sequence), the backbone with capsules
that are at hand, and all that the model thread does for a batch, from padding the rows to a
probability for each label.
"""

import asyncio
from collections.abc import Iterator, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

import torch

from benchmarks.context import Context
from benchmarks.errors import BenchmarkError
from benchmarks.in_process import engine_config, shipped_engine, shipped_executor, torch_threads
from benchmarks.random_capsules import MIXED_LABELS, fill_bank, random_capsules
from benchmarks.result import Figure, Findings, Goal, Series, at_least, figure, series
from benchmarks.sampling import difference, interleave, ratio, seconds
from benchmarks.texts import load_texts
from capsules.backbones.base import LoadedBackbone
from capsules.backbones.load import load
from capsules.core import Encoding, TokenBatch
from capsules.executors.base import Executor
from capsules.injection import Prompts
from capsules.model import pad
from service.engine.batcher import pick
from service.engine.engine import Engine
from service.engine.records import RowAnswer, RowRequest, Served
from service.engine.request import Request, Row

QUESTION = "How much slower is a batch of many tasks, through the engine, than the bare backbone?"

BARE = "bare backbone"
LONGER = "bare backbone, one more token"
INJECTED = "with capsules at hand"
MIXED = "mixed tasks through the engine"
GOAL = 0.97

REAL_LENGTHS = "real lengths"
FULLNESS = 0.8
"""Rows of a made-up batch are between this part of its width and all of it, as the batcher sees to."""

TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Shape:
    """A batch of `rows` rows, the longest of `tokens` tokens."""

    rows: int
    tokens: int

    def __str__(self) -> str:
        return f"{self.rows} rows of up to {self.tokens} tokens"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    Attributes:
        capsules: in the bank.
        shapes: of made-up batches.
        waiting: texts of real lengths that wait when the batcher picks; 0 leaves that case out.
        rounds: of each case.
    """

    capsules: int
    shapes: tuple[Shape, ...]
    waiting: int
    rounds: int


FULL = Sizes(
    capsules=1000,
    shapes=(Shape(32, 16), Shape(32, 32), Shape(8, 64), Shape(1, 16)),
    waiting=64,
    rounds=60,
)
QUICK = Sizes(capsules=40, shapes=(Shape(4, 8),), waiting=16, rounds=2)


def measure(context: Context) -> Findings:
    """Answer the question.

    Raises:
        BenchmarkError: a row got no answer.
    """
    sizes = QUICK if context.quick else FULL
    loaded = load(context.backbone, device=context.device)
    executor = shipped_executor(loaded, context.backbone, context.executor)
    texts = load_texts(sizes.rounds * sizes.waiting, context.data)
    cases = [
        (str(shape), [made_up(shape, loaded, number) for number in range(sizes.rounds)])
        for shape in sizes.shapes
    ]
    if sizes.waiting:
        cases.append((REAL_LENGTHS, real_batches(texts.texts, sizes.waiting, loaded, executor)))

    every_series: list[Series] = []
    figures: list[Figure] = []
    with set_up(loaded, executor, sizes.capsules) as bench:
        for name, batches in cases:
            context.tell(f"{name}: {sizes.rounds} rounds")
            measured = bench.compare(batches)
            every_series += [series(name, side, "ms", took) for side, took in measured.items()]
            # A single row is no mixed batch; what it costs is told, but held to nothing.
            goal = at_least(GOAL) if len(batches[0]) > 1 else None
            figures += figures_of(name, measured, goal)
    return Findings(
        options={
            "backbone": loaded.info.id,
            "device": str(loaded.backbone.device),
            "dtype": str(loaded.backbone.dtype).removeprefix("torch."),
            "executor": executor.name,
            "capsules": sizes.capsules,
            "labels": list(MIXED_LABELS),
            "rounds": sizes.rounds,
            "texts": texts.source,
        },
        figures=tuple(sorted(figures, key=lambda one: one.goal is None)),
        series=tuple(every_series),
        notes=(
            "A capsule takes one position, so a row of T tokens takes T + 1 of them: the bare "
            "backbone on one more token is what no engine could be faster than.",
            "Every side uses the same executor, and has it prepare a pass (which pads or packs) "
            "and run it, one after the other. An executor that has lanes runs batches of several rows "
            "on one core, as the engine does, which runs as many of them at a time as there are cores.",
            f"In `{REAL_LENGTHS}` the batcher picks from {sizes.waiting} waiting texts, so batches "
            "differ from round to round.",
        ),
    )


def figures_of(case: str, took: dict[str, list[float]], goal: Goal | None) -> list[Figure]:
    """What is made of one case's milliseconds."""
    return [
        figure(f"{case}: bare / mixed", "ratio", ratio(took[BARE], took[MIXED]), goal),
        figure(
            f"{case}: bare with one more token / mixed", "ratio", ratio(took[LONGER], took[MIXED])
        ),
        figure(f"{case}: cost of the position", "ms", difference(took[LONGER], took[BARE])),
        figure(f"{case}: cost of injecting", "ms", difference(took[INJECTED], took[LONGER])),
        figure(
            f"{case}: cost of gather, heads and replies",
            "ms",
            difference(took[MIXED], took[INJECTED]),
        ),
    ]


def made_up(shape: Shape, loaded: LoadedBackbone, seed: int) -> list[Encoding]:
    """Random tokens, the first row as long as the batch is wide."""
    random = Random(seed)
    shortest = max(round(shape.tokens * FULLNESS), 1)
    lengths = [
        shape.tokens,
        *(random.randint(shortest, shape.tokens) for _ in range(shape.rows - 1)),
    ]
    return [
        Encoding(
            input_ids=tuple(random.randrange(loaded.info.vocab_size) for _ in range(length)),
            truncated=False,
        )
        for length in lengths
    ]


@dataclass(frozen=True, slots=True)
class Waiting:
    """A text as the batcher sees it, with a capsule of one slot and no hurry."""

    encoding: Encoding
    slots: int = 1
    deadline: float = TIMEOUT_S
    cancelled: bool = False

    @property
    def tokens(self) -> int:
        """Tokens of the text."""
        return len(self.encoding.input_ids)


def real_batches(
    texts: Sequence[str], waiting: int, loaded: LoadedBackbone, executor: Executor
) -> list[list[Encoding]]:
    """The batches that the engine's batcher would run first, each of `waiting` other texts."""
    encodings = loaded.tokeniser.encode(texts, loaded.info.max_tokens - 1)
    limits = engine_config(executor).limits(executor.device, padding_free=executor.padding_free)
    batches = []
    for start in range(0, len(encodings), waiting):
        rows = [Waiting(encoding) for encoding in encodings[start : start + waiting]]
        batches.append([row.encoding for row in pick(rows, 0.0, limits).batch])
    return batches


@dataclass(frozen=True, slots=True)
class Bench:
    """An engine whose model thread is not running, so that its work can be done here and timed.

    Attributes:
        engine: with a full bank.
        served: the capsules in it.
        runner: of the event loop that replies go to.
        random: which capsules a batch has.
    """

    engine: Engine
    served: Sequence[Served]
    runner: asyncio.Runner
    random: Random

    def compare(self, batches: Sequence[Sequence[Encoding]]) -> dict[str, list[float]]:
        """Milliseconds of each side, a batch a round."""
        measured = interleave(
            {
                BARE: lambda turn: self.bare(self.pad(batches[turn])),
                LONGER: lambda turn: self.bare(longer(self.pad(batches[turn]))),
                INJECTED: lambda turn: self.injected(batches[turn]),
                MIXED: lambda turn: self.mixed(batches[turn]),
            },
            len(batches),
            warm_up=3,
        )
        return {side: [took * 1000 for took in values] for side, values in measured.items()}

    def pad(self, batch: Sequence[Encoding]) -> TokenBatch:
        """The batch as the model thread pads it."""
        return pad(batch, self.engine.loaded.tokeniser.pad_id)

    def bare(self, tokens: TokenBatch) -> float:
        """Seconds of a forward pass without capsules."""
        return seconds(lambda: self.forward(tokens, Prompts()))

    def injected(self, batch: Sequence[Encoding]) -> float:
        """Seconds of a forward pass with capsules that were gathered before."""
        tokens, capsules = self.pad(batch), self.draw(len(batch))
        self.engine.bank.pin(capsules)
        try:
            with self.engine.bank.gather(capsules) as gathered:
                return seconds(lambda: self.forward(tokens, gathered.prompts))
        finally:
            self.engine.bank.unpin(capsules)

    def mixed(self, batch: Sequence[Encoding]) -> float:
        """Seconds of all that the model thread does for a batch.

        Raises:
            BenchmarkError: a row got no answer.
        """
        capsules = self.draw(len(batch))
        rows = self.runner.run(as_rows(batch, capsules))
        self.engine.bank.pin(capsules)
        took = seconds(lambda: self.engine.worker.run(rows, alone=alone(rows)))
        self.runner.run(asyncio.sleep(0))  # replies are delivered by the loop
        for row in rows:
            (given,) = row.request.answers
            if not isinstance(given, RowAnswer):
                raise BenchmarkError(f"A row got no answer, but {given!r}.")
        return took

    def forward(self, tokens: TokenBatch, prompts: Prompts) -> None:
        """A forward pass, to its end: what a GPU does is waited for."""
        self.engine.executor.prepare(tokens, prompts, alone=alone(tokens))()
        if self.engine.executor.device.type == "cuda":
            torch.cuda.synchronize(self.engine.executor.device)

    def draw(self, rows: int) -> list[Served]:
        """Capsules for the rows of one batch, no two the same."""
        return self.random.sample(self.served, rows)


def alone(batch: Sized) -> bool:
    """Whether the engine would give a batch all cores, and not run another beside it."""
    return len(batch) == 1


async def as_rows(batch: Sequence[Encoding], capsules: Sequence[Served]) -> list[Row]:
    """A batch as the queue hands it over, each row of a request of its own."""
    rows = []
    for encoding, capsule in zip(batch, capsules, strict=True):
        request = Request([RowRequest(capsule, {})], TIMEOUT_S)
        rows.append(Row(request, 0, capsule, encoding, request.deadline - TIMEOUT_S))
    return rows


def longer(tokens: TokenBatch) -> TokenBatch:
    """The same batch with one more real token in each row: its first one twice."""
    return TokenBatch(
        input_ids=torch.cat((tokens.input_ids[:, :1], tokens.input_ids), dim=1),
        attention_mask=torch.cat((tokens.attention_mask[:, :1], tokens.attention_mask), dim=1),
    )


@contextmanager
def set_up(loaded: LoadedBackbone, executor: Executor, capsules: int) -> Iterator[Bench]:
    """An engine with so many capsules in its bank, on an event loop of its own."""
    engine = shipped_engine(loaded, executor)
    served = fill_bank(engine.bank, random_capsules(loaded.info, capsules))
    with torch_threads(executor), asyncio.Runner() as runner:
        try:
            yield Bench(engine, served, runner, Random(0))
        finally:
            runner.run(engine.stop())
