"""How near the backbone comes to what the processor can multiply.

The ceiling is the fastest matrix product in float32 that any library reaches on a server's threads.
What is held against it is useful work alone: products of weights and attention on real positions.
Packing, padding, norms, activations, capsules, heads, tokenising and requests are nobody's work.

For an encoder of N layers, width D and inner width F, on rows of s positions each::

    FLOPs = N (sum(s) (8 D^2 + 4 D F) + 4 D sum(s^2))
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from random import Random

import numpy as np
import torch

from benchmarks.children import NOTE, child
from benchmarks.context import Context
from benchmarks.engine_overhead import Shape, real_batches
from benchmarks.flops import Work, inner_width, work_of
from benchmarks.in_process import (
    InProcess,
    engine_config,
    shipped_engine,
    shipped_executor,
    spread,
)
from benchmarks.products import LIBRARIES, ONNXRUNTIME, TORCH, Library, Product
from benchmarks.random_capsules import MIXED_LABELS, fill_bank, random_capsules
from benchmarks.result import Figure, Findings, Series, at_least, figure, series
from benchmarks.sampling import interleave, ratio, seconds
from benchmarks.texts import load_texts
from capsules.backbones.base import BackboneInfo
from capsules.backbones.load import load
from capsules.core import Encoding
from capsules.model import pad
from service.engine.executors import Choice, Quantization, available_cores

QUESTION = "What part of the processor's speed at matrix products reaches the texts?"

SHORTER = "32 rows of 32 positions"
REAL = "real lengths, as batched"
ENGINE = "float32"
ENGINE_INT8 = "int8"
BOUND = "float32 bound"
ONE_CORE = "one core"
LANE_LIBRARIES = (TORCH, ONNXRUNTIME)
"""The fastest on all cores, and the one that our executor has multiply."""

PAUSE_S = 0.3
"""Threads of a library spin for up to some tenths of a second after they have worked."""

RATE_GOAL = 0.60
ENGINE_GOAL = 0.75
INT8_GOAL = 1.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    Attributes:
        positions: of the products that the backbone is made of.
        lane: likewise of those that one core computes, about as many as a batch has.
        square: rows and columns of the largest product.
        shape: of even batches, a capsule's slot left out.
        waiting: texts that the batcher picks a batch of real lengths from.
        batches: of one round.
        capsules: tasks of the engine.
        concurrency: callers of the engine.
        requests: of one round.
        rounds: of everything.
    """

    positions: int
    lane: int
    square: int
    shape: Shape
    waiting: int
    batches: int
    capsules: int
    concurrency: int
    requests: int
    rounds: int


FULL = Sizes(
    positions=1024,
    lane=256,
    square=4096,
    shape=Shape(32, 31),
    waiting=64,
    batches=6,
    capsules=100,
    concurrency=64,
    requests=512,
    rounds=15,
)
QUICK = Sizes(
    positions=16,
    lane=8,
    square=64,
    shape=Shape(4, 7),
    waiting=16,
    batches=2,
    capsules=5,
    concurrency=4,
    requests=12,
    rounds=2,
)


def measure(context: Context) -> Findings:
    """Answer the question.

    Raises:
        WrongMachineError: see :func:`work_of`.
        BenchmarkError: a row was not answered.
    """
    sizes = QUICK if context.quick else FULL
    loaded = load(context.backbone, device=context.device)
    work = work_of(loaded)
    texts = load_texts(
        max(sizes.requests, sizes.batches * sizes.waiting) * sizes.rounds, context.data
    )
    inner = inner_width(loaded)
    plan = Plan(
        sizes,
        work,
        products(loaded.info, inner, sizes),
        lane_products(loaded.info, inner, sizes),
        texts.texts,
    )
    with set_up(context, plan) as bench:
        context.tell(f"{sizes.rounds} rounds")
        found = bench.compare(plan)
        executor = bench.engines[ENGINE].name()
    return Findings(
        options={
            "backbone": loaded.info.id,
            "executor": executor,
            "threads": available_cores(),
            "FLOPs of a position": work.linear,
            "FLOPs of a pair in attention": work.attention,
            "capsules": sizes.capsules,
            "labels": list(MIXED_LABELS),
            "concurrency": sizes.concurrency,
            "requests": sizes.requests,
            "rounds": sizes.rounds,
            "texts": texts.source,
        },
        figures=tuple(figures_of(found)),
        series=tuple(series_of(found)),
        notes=(
            NOTE,
            "FLOPs of N layers of width D and inner width F on rows of s positions: "
            "N (sum(s) (8 D^2 + 4 D F) + 4 D sum(s^2)). Nothing else counts as work.",
            "The ceiling is the library and shape with the highest median; a ratio is taken with "
            "its value in the same round.",
            "In batches a capsule's slot counts as a position, and packing them is in their time. "
            f"The `{BOUND}` is the ceiling over the FLOPs of the texts alone, without slots: what "
            "a program would reach that does nothing but these products, on texts without padding.",
            f"`{ONE_CORE}` has the products of one layer on a batch of {sizes.lane} "
            "positions, as lanes run them, by the library of the ceiling and by the executor's. "
            "Each is computed over and over, so that its weights stay in the caches.",
            *(() if ENGINE_INT8 in bench.engines else (INT8_LEFT_OUT,)),
        ),
    )


INT8_LEFT_OUT = f"`{ENGINE_INT8}` is left out: the executor was chosen to be torch."


def products(info: BackboneInfo, inner: int, sizes: Sizes) -> tuple[Product, ...]:
    """The products that a backbone is made of, and a large one."""
    return (
        *layer_products(info.hidden_size, inner, sizes.positions),
        Product(sizes.square, sizes.square, sizes.square),
    )


def lane_products(info: BackboneInfo, inner: int, sizes: Sizes) -> tuple[Product, ...]:
    """The products of one layer on one batch."""
    width, positions = info.hidden_size, sizes.lane
    return (Product(positions, width, 3 * width), *layer_products(width, inner, positions))


def layer_products(width: int, inner: int, positions: int) -> tuple[Product, ...]:
    """Those of a layer that are not fused: after attention, and either way of the feed-forward."""
    return (
        Product(positions, width, width),
        Product(positions, width, inner),
        Product(positions, inner, width),
    )


def on_one_core(what: str) -> str:
    """What is measured on one core."""
    return f"{ONE_CORE}, {what}"


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be measured.

    Attributes:
        sizes: of it.
        work: of the backbone.
        products: that the ceiling is looked for at.
        lane: products that one core computes.
        texts: enough for all rounds.
    """

    sizes: Sizes
    work: Work
    products: tuple[Product, ...]
    lane: tuple[Product, ...]
    texts: Sequence[str]

    def requests(self, turn: int) -> Sequence[str]:
        """The texts that a round sends through the engine."""
        return self.texts[turn * self.sizes.requests : (turn + 1) * self.sizes.requests]

    def waiting(self, turn: int) -> Sequence[str]:
        """The texts that the batches of a round are picked from."""
        count = self.sizes.batches * self.sizes.waiting
        return self.texts[turn * count : (turn + 1) * count]


class Ours:
    """The executor and the engine around it, which are not used at once."""

    def __init__(
        self, backbone: str, choice: Choice, quantization: Quantization, sizes: Sizes
    ) -> None:
        """Load everything, and start the engine.

        Args:
            backbone: as the server's setting.
            choice: of the executor, likewise.
            quantization: likewise.
            sizes: of what will be asked.
        """
        self.sizes = sizes
        self.loaded = load(backbone, device="cpu")
        self.executor = shipped_executor(self.loaded, backbone, choice, quantization)
        threads = engine_config(self.executor).threads
        if threads is not None:
            torch.set_num_threads(threads)
        engine = shipped_engine(self.loaded, self.executor)
        self.bank = engine.bank
        self.served = fill_bank(engine.bank, random_capsules(self.loaded.info, sizes.capsules))
        self.started = InProcess(engine)

    def name(self) -> str:
        """What the executor is called."""
        return self.executor.name

    def even(self, work: Work, turn: int) -> float:
        """1e9 operations a second of batches of even rows."""
        random = Random(turn)
        rows = [self.even_batch(random) for _ in range(self.sizes.batches)]
        return self.rate(work, rows)

    def even_batch(self, random: Random) -> list[Encoding]:
        """Rows of random tokens, all of one length."""
        shape, vocabulary = self.sizes.shape, range(self.loaded.info.vocab_size)
        return [
            Encoding(tuple(random.choices(vocabulary, k=shape.tokens)), truncated=False)
            for _ in range(shape.rows)
        ]

    def real(self, work: Work, texts: Sequence[str]) -> float:
        """1e9 operations a second of the batches that the batcher picks."""
        return self.rate(work, real_batches(texts, self.sizes.waiting, self.loaded, self.executor))

    def rate(self, work: Work, batches: Sequence[Sequence[Encoding]]) -> float:
        """1e9 operations a second of the executor on batches of mixed tasks."""
        took = 0.0
        for batch in batches:
            capsules = [self.served[row % len(self.served)] for row in range(len(batch))]
            tokens = pad(batch, self.loaded.tokeniser.pad_id)
            self.bank.pin(capsules)
            with self.bank.gather(capsules) as gathered:
                took += seconds(partial(self.executor.features, tokens, gathered.prompts))
            self.bank.unpin(capsules)
        return sum(work.of([len(row.input_ids) + 1 for row in one]) for one in batches) / took / 1e9

    def texts(self, texts: Sequence[str]) -> float:
        """Texts a second through the engine, one a request."""
        rows = spread(texts, self.served)
        return len(rows) / self.started.send(rows, self.sizes.concurrency).seconds

    def text_flops(self, work: Work, texts: Sequence[str]) -> float:
        """FLOPs of a text of these, on average; capsules have no part in it."""
        most = self.served[0].max_tokens
        lengths = [len(one.input_ids) for one in self.loaded.tokeniser.encode(texts, most)]
        return work.of(lengths) / len(lengths)


@dataclass(frozen=True, slots=True)
class Found:
    """What was measured, a value a round.

    Attributes:
        products: 1e9 operations a second by library and product.
        lane: likewise, by one core.
        lane_seconds: of one of each of these, by library.
        rates: 1e9 operations a second by kind of batch.
        texts: texts a second by engine.
        flops: of a text.
    """

    products: Mapping[tuple[str, str], Sequence[float]]
    lane: Mapping[tuple[str, str], Sequence[float]]
    lane_seconds: Mapping[str, Sequence[float]]
    rates: Mapping[str, Sequence[float]]
    texts: Mapping[str, Sequence[float]]
    flops: Sequence[float]

    @property
    def ceiling(self) -> tuple[str, str]:
        """The fastest library, and at what."""
        return max(self.products, key=lambda one: float(np.median(self.products[one])))

    @property
    def bound(self) -> list[float]:
        """Texts a second that the ceiling allows for."""
        highest = self.products[self.ceiling]
        return [rate * 1e9 / flops for rate, flops in zip(highest, self.flops, strict=True)]


@dataclass(frozen=True, slots=True)
class Bench:
    """Everyone, each in a process of its own.

    Attributes:
        libraries: by name.
        lanes: libraries on one core, likewise.
        engines: by name.
    """

    libraries: Mapping[str, Library]
    lanes: Mapping[str, Library]
    engines: Mapping[str, Ours]

    def compare(self, plan: Plan) -> Found:
        """All rounds."""
        ours = self.engines[ENGINE]
        sides: dict[str, Callable[[int], list[float]]] = {
            SHORTER: lambda turn: [ours.even(plan.work, turn)],
            REAL: lambda turn: [ours.real(plan.work, plan.waiting(turn))],
        }
        for name, library in self.libraries.items():
            sides[name] = partial(multiplied, library)
        for name, library in self.lanes.items():
            sides[on_one_core(name)] = partial(multiplied, library)
        for name, engine in self.engines.items():
            sides[name] = partial(classified, engine, plan)
        measured = interleave(sides, plan.sizes.rounds, pause_s=PAUSE_S)
        lanes = {name: measured[on_one_core(name)] for name in self.lanes}
        return Found(
            products=by_product({name: measured[name] for name in self.libraries}, plan.products),
            lane=by_product(lanes, plan.lane),
            lane_seconds={
                name: [
                    sum(
                        product.flops / rate / 1e9
                        for product, rate in zip(plan.lane, rates, strict=True)
                    )
                    for rates in rounds
                ]
                for name, rounds in lanes.items()
            },
            rates={name: [rate for (rate,) in measured[name]] for name in (SHORTER, REAL)},
            texts={name: [rate for (rate,) in measured[name]] for name in self.engines},
            flops=[
                ours.text_flops(plan.work, plan.requests(turn)) for turn in range(plan.sizes.rounds)
            ],
        )


def by_product(
    rounds: Mapping[str, Sequence[Sequence[float]]], every: Sequence[Product]
) -> dict[tuple[str, str], list[float]]:
    """What was measured of libraries, a value a round, by library and product."""
    return {
        (name, str(product)): [one[index] for one in values]
        for name, values in rounds.items()
        for index, product in enumerate(every)
    }


def multiplied(library: Library, _turn: int) -> list[float]:
    """One round of a library."""
    return library.gflops()


def classified(engine: Ours, plan: Plan, turn: int) -> list[float]:
    """One round of an engine."""
    return [engine.texts(plan.requests(turn))]


@contextmanager
def set_up(context: Context, plan: Plan) -> Iterator[Bench]:
    """Start every process."""
    threads = available_cores()
    engines: dict[str, Quantization] = {ENGINE: "none", ENGINE_INT8: "int8"}
    if context.executor == "torch":
        del engines[ENGINE_INT8]
    with ExitStack() as stack:
        yield Bench(
            libraries={
                name: stack.enter_context(child(Library, name, plan.products, threads))
                for name in LIBRARIES
            },
            lanes={
                name: stack.enter_context(child(Library, name, plan.lane, 1))
                for name in LANE_LIBRARIES
            },
            engines={
                name: stack.enter_context(
                    child(Ours, context.backbone, context.executor, quantization, plan.sizes)
                )
                for name, quantization in engines.items()
            },
        )


def figures_of(found: Found) -> Iterator[Figure]:
    """What is made of it."""
    library, product = found.ceiling
    highest = found.products[library, product]
    for name, goal in ((SHORTER, at_least(RATE_GOAL)), (REAL, None)):
        yield figure(
            f"{name}: executor / ceiling ({library}, {product})",
            "ratio",
            ratio(found.rates[name], highest),
            goal,
        )
    theirs, ours = (found.lane_seconds[name] for name in LANE_LIBRARIES)
    yield figure(
        f"{on_one_core('products of a batch')}: rate of {ONNXRUNTIME} / {TORCH}",
        "ratio",
        ratio(theirs, ours),
    )
    goals = {ENGINE: at_least(ENGINE_GOAL), ENGINE_INT8: at_least(INT8_GOAL)}
    for name, rates in found.texts.items():
        yield figure(
            f"texts a second, engine in {name} / {BOUND}",
            "ratio",
            ratio(rates, found.bound),
            goals[name],
        )


def series_of(found: Found) -> Iterator[Series]:
    """What was measured."""
    for (library, product), rates in found.products.items():
        yield series(product, library, "GFLOP/s", rates)
    for (library, product), rates in found.lane.items():
        yield series(on_one_core(product), library, "GFLOP/s", rates)
    for name, rates in found.rates.items():
        yield series(name, "executor", "GFLOP/s", rates)
    for name, rates in {**found.texts, BOUND: found.bound}.items():
        yield series("real lengths, single texts", name, "texts/s", rates)
