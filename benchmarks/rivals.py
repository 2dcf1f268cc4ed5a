"""Our server beside those that classify with one model and one head, and beside PEFT's LoRA.

Same backbone, same texts, same two cores, one run. The rivals serve one task; ours serves a
hundred, of different label counts.
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.context import Context
from benchmarks.load.process import LoadProcess
from benchmarks.random_capsules import MIXED_LABELS
from benchmarks.result import Figure, Findings, Series, at_least, figure, series
from benchmarks.rival_servers.catalogue import (
    INFINITY,
    INFINITY_EAGER,
    INSTALL,
    RIVALS,
    Rival,
)
from benchmarks.rival_servers.model_folder import LABELS, write_model
from benchmarks.rivals_http import OURS, OURS_INT8, Round, Server, compare_scores, servers
from benchmarks.rivals_in_process import (
    ADAPTERS,
    RANK,
    ROWS,
    Ours,
    Transformers,
    our_side,
    transformers_side,
)
from benchmarks.sampling import interleave, ratio
from benchmarks.texts import load_texts
from capsules.backbones.load import load

QUESTION = "How many texts a second do we classify, beside servers of one task and beside PEFT?"

PIPELINE_ONE = "pipeline, one by one"
PIPELINE_BATCH = f"pipeline, batches of {ROWS}"
PEFT = f"PEFT LoRA, {ADAPTERS} tasks mixed"
PEFT_BASE = "the same model without LoRA"
ENGINE = "our engine, in process"
EXECUTOR = "our executor"

ONE, EIGHT, MANY = 1, 8, 64
IDENTICAL = f"identical batches of {ROWS}"
CORES = 2
CHECKED = 4
MOST_TOKENS = 128

BEST = "the best rival, {}"
MANY_GOAL = 2.5
ONE_GOAL = 1.5
INFINITY_GOAL = 3.0
PEFT_ARRIVAL_GOAL = 3.0
PEFT_IDENTICAL_GOAL = 1.2


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    Attributes:
        texts: that rounds take theirs from.
        capsules: tasks of ours.
        requests: of one round, by the number of callers.
        batches: of one round, where batches are identical.
        rounds: of each case.
    """

    texts: int
    capsules: int
    requests: Mapping[int, int]
    batches: int
    rounds: int


FULL = Sizes(
    texts=2000, capsules=100, requests={ONE: 50, EIGHT: 160, MANY: 640}, batches=6, rounds=6
)
QUICK = Sizes(texts=64, capsules=5, requests={ONE: 2, EIGHT: 8, MANY: 16}, batches=1, rounds=1)


def measure(context: Context) -> Findings:
    """Answer the question.

    Raises:
        BenchmarkError: a server could not be started, or does not run the model that it is given.
    """
    return compare(context, RIVALS, QUICK if context.quick else FULL)


def compare(context: Context, rivals: Sequence[Rival], sizes: Sizes) -> Findings:
    """Measure ours beside those rivals that are installed."""
    there = [rival for rival in rivals if rival.installed]
    texts = load_texts(sizes.texts, context.data)
    with set_up(context, there, sizes, texts.texts) as bench:
        measured = {case(callers): bench.round_trips(callers) for callers in (ONE, EIGHT, MANY)}
        measured[IDENTICAL] = bench.identical()
        refusal = bench.transformers.different_heads()
        executor = bench.ours.name()
    return Findings(
        options={
            "executor": executor,
            "capsules": sizes.capsules,
            "labels": list(MIXED_LABELS),
            "rival_labels": LABELS,
            "rank": RANK,
            "requests": {str(callers): count for callers, count in sizes.requests.items()},
            "batches": sizes.batches,
            "rounds": sizes.rounds,
            "texts": texts.source,
            "cores": CORES,
        },
        figures=tuple(figures_of(measured, [rival.name for rival in there])),
        series=tuple(series_of(measured)),
        notes=(*notes(refusal), *missing(rivals)),
    )


def case(callers: int) -> str:
    """What a number of callers is called."""
    return f"{callers} at a time"


Measured = Mapping[str, Mapping[str, Sequence[Round]]]
"""Rounds by case and side."""


def figures_of(measured: Measured, rivals: Sequence[str]) -> Iterator[Figure]:
    """What is made of the rounds, each pair of sides once: where it has a goal, if it has one."""
    told = set()
    for one in compared(measured, rivals):
        if one.name not in told:
            told.add(one.name)
            yield one


def compared(measured: Measured, rivals: Sequence[str]) -> Iterator[Figure]:
    """What is held to a goal, then ours beside everyone."""

    def over(
        where: str, side: str, other: str, goal: float | None = None, called: str = "{}"
    ) -> Figure:
        ours, theirs = rates(measured[where][side]), rates(measured[where][other])
        bound = None if goal is None else at_least(goal)
        name = f"{where}: {side} / {called.format(other)}"
        return figure(name, "ratio", ratio(ours, theirs), bound)

    many, one = case(MANY), case(ONE)
    if rivals:
        yield over(many, OURS, best(measured[many], rivals), MANY_GOAL, BEST)
    yield over(many, OURS, PIPELINE_BATCH, MANY_GOAL)
    if rivals:
        yield over(one, OURS, best(measured[one], rivals), ONE_GOAL, BEST)
    infinity = [name for name in rivals if name in (INFINITY, INFINITY_EAGER)]
    if infinity:
        yield over(one, OURS, best(measured[one], infinity), INFINITY_GOAL)
    yield over(many, ENGINE, PEFT, PEFT_ARRIVAL_GOAL)
    yield over(IDENTICAL, EXECUTOR, PEFT, PEFT_IDENTICAL_GOAL)
    yield over(IDENTICAL, PEFT, PEFT_BASE)
    for where in (one, case(EIGHT), many):
        for name in rivals:
            yield over(where, OURS, name)
    if rivals and OURS_INT8 in measured[one]:
        for where in (one, many):
            yield over(where, OURS_INT8, best(measured[where], rivals), None, BEST)
    yield over(one, ENGINE, PIPELINE_ONE)


def best(sides: Mapping[str, Sequence[Round]], names: Sequence[str]) -> str:
    """Which of them had the highest median rate."""
    return max(names, key=lambda name: ratio(rates(sides[name]), [1.0] * len(sides[name])).value)


def rates(rounds: Sequence[Round]) -> list[float]:
    """Texts a second, a round each."""
    return [one.rate for one in rounds]


def series_of(measured: Measured) -> Iterator[Series]:
    """What was measured."""
    for where, sides in measured.items():
        for side, rounds in sides.items():
            yield series(where, side, "texts/s", rates(rounds))
            p50 = [one.p50_ms for one in rounds if one.p50_ms is not None]
            p99 = [one.p99_ms for one in rounds if one.p99_ms is not None]
            if p50:
                yield series(where, side, "ms, p50", p50)
                yield series(where, side, "ms, p99", p99)


def notes(refusal: str) -> Iterator[str]:
    """What a reader must know."""
    yield (
        "The rivals serve the backbone with one head of "
        f"{LABELS} labels, checked against transformers before it is measured. Ours serves tasks "
        "of different label counts that texts have in turn, as shipped, logs and metrics included. "
        "In process, texts arrive in the same order."
    )
    yield (
        f"All run on the same {CORES} cores as the client, with the threads that they choose "
        "themselves. All servers are up throughout; those that are not being asked are held with "
        "SIGSTOP, and each gets a few texts before its round counts."
    )
    yield (
        "Infinity runs with --no-bettertransformer, which changes nothing here: the release of "
        "optimum that is installed for it has no BetterTransformer any more. It runs with "
        "--no-model-warmup too, as its own takes minutes on texts of 512 tokens; one round of each "
        "case goes ahead instead. Compiled is its default. Its optimum engine finds the graph of a "
        "local model only where it is started in the model's folder."
    )
    yield (
        f"LitServe and mosec run one worker with batches of up to {ROWS} rows and 5 ms of waiting."
    )
    yield (
        f"`{OURS_INT8}` is the same server with matrix products in 8-bit integers, which rounds its "
        "answers (`executors` has what that costs in accuracy); everyone else computes in float32."
    )
    if refusal:
        yield (
            "PEFT's adapters all have heads of one size here: a mixed batch of two sizes fails "
            f"with {refusal}"
        )


def missing(rivals: Sequence[Rival]) -> Iterator[str]:
    """Who was not measured, and what to do about it."""
    for rival in rivals:
        if not rival.installed:
            yield (
                f"{rival.name} was not measured: it is not installed in {rival.environment.name}, "
                f"an environment of its own; run `{INSTALL}`, then this benchmark again."
            )


@dataclass(frozen=True, slots=True)
class Bench:
    """Everyone, ready.

    Attributes:
        sizes: how much is measured.
        texts: of real lengths.
        sender: sends requests.
        servers: those that are asked over HTTP.
        transformers: the pipeline and PEFT.
        ours: our engine.
    """

    sizes: Sizes
    texts: Sequence[str]
    sender: LoadProcess
    servers: Sequence[Server]
    transformers: Transformers
    ours: Ours
    tell: Callable[[str], None]

    def round_trips(self, callers: int) -> Mapping[str, Sequence[Round]]:
        """All sides with so many callers, and those in process that are compared with them."""
        self.tell(f"{case(callers)}: {self.sizes.rounds} rounds")
        sides: dict[str, Callable[[int], Round]] = {
            server.name: self.asked(server, callers) for server in self.servers
        }
        if callers == ONE:
            sides[PIPELINE_ONE] = self.timed(
                callers, lambda texts: self.transformers.pipe(texts, 1)
            )
        if callers == MANY:
            sides[PIPELINE_BATCH] = self.timed(
                callers, lambda texts: self.transformers.pipe(texts, ROWS)
            )
            sides[PEFT] = self.timed(callers, self.transformers.mixed_arrival)
        if callers in (ONE, MANY):
            sides[ENGINE] = self.timed(callers, lambda texts: self.ours.rate(texts, callers))
        return interleave(sides, self.sizes.rounds)

    def asked(self, server: Server, callers: int) -> Callable[[int], Round]:
        """Rounds of a server."""
        return lambda turn: server.round(self.sender, self.some(turn, callers), callers)

    def timed(self, callers: int, work: Callable[[Sequence[str]], float]) -> Callable[[int], Round]:
        """Rounds of something that says how many seconds it took."""

        def one(turn: int) -> Round:
            texts = self.some(turn, callers)
            return Round(rate=len(texts) / work(texts))

        return one

    def some(self, turn: int, callers: int) -> list[str]:
        """The texts of a round; all sides have the same ones."""
        count = self.sizes.requests[callers]
        return [self.texts[(turn * count + at) % len(self.texts)] for at in range(count)]

    def identical(self) -> Mapping[str, Sequence[Round]]:
        """Batches without regard to who made them: rows of like length, padded alike for all."""
        self.tell(f"{IDENTICAL}: {self.sizes.rounds} rounds")
        ids = sorted(self.ours.tokenise(list(self.texts), MOST_TOKENS), key=len)
        batches = [ids[at : at + ROWS] for at in range(0, len(ids) - ROWS + 1, ROWS)]

        def through(
            work: Callable[[Sequence[Sequence[Sequence[int]]]], float],
        ) -> Callable[[int], Round]:
            def one(turn: int) -> Round:
                # Evenly over all lengths, others each round.
                step = max(len(batches) // self.sizes.batches, 1)
                picked = batches[turn % step :: step][: self.sizes.batches]
                return Round(rate=sum(map(len, picked)) / work(picked))

            return one

        return interleave(
            {
                PEFT: through(self.transformers.mixed_batches),
                PEFT_BASE: through(self.transformers.base_batches),
                EXECUTOR: through(self.ours.mixed_batches),
            },
            self.sizes.rounds,
        )


@contextmanager
def set_up(
    context: Context, rivals: Sequence[Rival], sizes: Sizes, texts: Sequence[str]
) -> Iterator[Bench]:
    """Start everyone on the same cores, and end them at the end."""
    info = load(context.backbone, device="cpu").info
    with ExitStack() as stack:
        stack.enter_context(pinned(CORES))
        model = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        write_model(info, model)
        transformers = stack.enter_context(transformers_side(model))
        checked = list(texts[:CHECKED])
        expected = transformers.scores(checked)

        def check(rival: Rival, ask: Callable[[str], str]) -> None:
            compare_scores(rival, [ask(text) for text in checked], expected)

        sender, up = stack.enter_context(
            servers(context, rivals, model, info, sizes.capsules, check)
        )
        ours = stack.enter_context(
            our_side(context.backbone, context.device, context.executor, sizes.capsules)
        )
        yield Bench(sizes, texts, sender, up, transformers, ours, context.tell)


@contextmanager
def pinned(count: int) -> Iterator[None]:
    """Keep this process, and those that it starts, to so many of its cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
