"""What HTTP adds to the engine, and the engine to a forward pass.

A server in a process of its own, sent load by another process over kept connections, against the
same engine called in this process: the same texts under the same tasks, with as many callers.
"""

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.context import Context
from benchmarks.errors import BenchmarkError
from benchmarks.in_process import (
    InProcess,
    in_process,
    shipped_engine,
    shipped_executor,
    spread,
    torch_threads,
)
from benchmarks.load.process import LoadProcess, load_process
from benchmarks.load.records import Job, Load
from benchmarks.random_capsules import MIXED_LABELS, fill_bank, fill_store, random_capsules
from benchmarks.result import Figure, Findings, Series, at_least, at_most, figure, series
from benchmarks.sampling import difference_of_medians, interleave, middle, ratio, seconds
from benchmarks.server import HOST, RunningServer, cpu_seconds, running_server
from benchmarks.texts import load_texts
from capsules.backbones.base import LoadedBackbone
from capsules.backbones.load import load
from capsules.executors.base import Executor
from capsules.injection import Prompts
from capsules.model import pad
from service.engine.records import RowRequest

QUESTION = "How many requests a second, and how many milliseconds, does HTTP cost?"

HTTP = "over HTTP"
IN_PROCESS = "engine in process"
BARE = "bare executor call"
RATE_GOAL = 0.9
LATENCY_GOAL_MS = 3.0

PATH = "/v1/classify"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    Attributes:
        capsules: tasks that the texts are spread over.
        concurrency: callers at a time where the rate is measured.
        requests: of one such round.
        rounds: of them.
        single_requests: of one round with one caller.
        single_rounds: of them.
    """

    capsules: int
    concurrency: int
    requests: int
    rounds: int
    single_requests: int
    single_rounds: int


FULL = Sizes(
    capsules=100,
    concurrency=64,
    requests=640,
    rounds=12,
    single_requests=20,
    single_rounds=20,
)
QUICK = Sizes(capsules=5, concurrency=4, requests=12, rounds=2, single_requests=3, single_rounds=2)


def measure(context: Context) -> Findings:
    """Answer the question.

    Raises:
        BenchmarkError: a request failed, or the server could not be started.
    """
    sizes = QUICK if context.quick else FULL
    needed = max(sizes.requests, sizes.single_requests * sizes.single_rounds)
    texts = load_texts(needed, context.data)
    with set_up(context, sizes, texts.texts) as bench:
        context.tell(f"{sizes.concurrency} at a time: {sizes.rounds} rounds")
        at_once = bench.compare_rates(sizes)
        context.tell(f"one at a time: {sizes.single_rounds} rounds")
        single = bench.compare_latencies(sizes)
    case = f"{sizes.concurrency} at a time"
    return Findings(
        options={
            "backbone": bench.loaded.info.id,
            "device": str(bench.loaded.backbone.device),
            "executor": bench.bare.name,
            "capsules": sizes.capsules,
            "labels": list(MIXED_LABELS),
            "requests": sizes.requests,
            "rounds": sizes.rounds,
            "texts": texts.source,
        },
        figures=(*rate_figures(case, at_once), *latency_figures(single)),
        series=(*rate_series(case, at_once), *latency_series(single)),
        notes=(
            "Every request holds one text. The server runs as shipped, logs and metrics included; "
            "the engine in process has the same executor, limits and threads, and the same event "
            "loop.",
            f"`{BARE}` is one pass of the same executor, without capsule, over a text that has "
            "been tokenised before.",
            "The load comes from a process of its own, a bare asyncio client over kept "
            "connections, on the same cores: what it takes of them is in the rate over HTTP.",
        ),
    )


@dataclass(frozen=True, slots=True)
class Round:
    """One round with many callers.

    Attributes:
        rate: requests a second.
        cpu_ms: processor time of the serving process, a request.
        client_cpu: part of the time for which the client kept a core busy.
    """

    rate: float
    cpu_ms: float
    client_cpu: float = 0.0


def rate_figures(case: str, at_once: dict[str, list[Round]]) -> list[Figure]:
    """What is made of the rounds with many callers."""
    http, engine = at_once[HTTP], at_once[IN_PROCESS]
    return [
        figure(
            f"{case}: requests a second, HTTP / engine",
            "ratio",
            ratio([one.rate for one in http], [one.rate for one in engine]),
            at_least(RATE_GOAL),
        ),
        figure(
            f"{case}: processor time a request, HTTP / engine",
            "ratio",
            ratio([one.cpu_ms for one in http], [one.cpu_ms for one in engine]),
        ),
        figure(
            f"{case}: part of a core that the client takes",
            "ratio",
            middle([one.client_cpu for one in http]),
        ),
    ]


def rate_series(case: str, at_once: dict[str, list[Round]]) -> list[Series]:
    """What the rounds with many callers measured."""
    return [
        series(case, side, unit, values)
        for side, rounds in at_once.items()
        for unit, values in (
            ("requests/s", [one.rate for one in rounds]),
            ("processor ms/request", [one.cpu_ms for one in rounds]),
        )
    ]


def latency_figures(single: dict[str, list[float]]) -> list[Figure]:
    """What is made of the milliseconds with one caller."""
    return [
        figure(
            "one at a time: p50 over HTTP above the bare executor call",
            "ms",
            difference_of_medians(single[HTTP], single[BARE]),
            at_most(LATENCY_GOAL_MS),
        ),
        figure(
            "one at a time: p50 over HTTP above the engine's",
            "ms",
            difference_of_medians(single[HTTP], single[IN_PROCESS]),
        ),
        figure(
            "one at a time: p50 of the engine above the bare executor call",
            "ms",
            difference_of_medians(single[IN_PROCESS], single[BARE]),
        ),
    ]


def latency_series(single: dict[str, list[float]]) -> list[Series]:
    """What the rounds with one caller measured."""
    return [series("one at a time", side, "ms", values) for side, values in single.items()]


@dataclass(frozen=True, slots=True)
class Bench:
    """Everything that answers, ready.

    Attributes:
        server: the server.
        load: sends requests to it.
        loaded: the backbone of the engine in this process.
        engine: with the same capsules as the server.
        bare: an executor of its own, on a second copy of the backbone.
        rows: the texts, each with the capsule that it is classified with.
    """

    server: RunningServer
    load: LoadProcess
    loaded: LoadedBackbone
    engine: InProcess
    bare: Executor
    rows: Sequence[RowRequest]

    def compare_rates(self, sizes: Sizes) -> dict[str, list[Round]]:
        """Rounds with many callers."""
        rows = self.rows[: sizes.requests]
        return interleave(
            {
                HTTP: lambda _: self.http_round(rows, sizes.concurrency),
                IN_PROCESS: lambda _: self.engine_round(rows, sizes.concurrency),
            },
            sizes.rounds,
        )

    def http_round(self, rows: Sequence[RowRequest], concurrency: int) -> Round:
        """All rows over HTTP."""
        before = cpu_seconds(self.server.process)
        load = self.post(rows, concurrency)
        return Round(
            rate=len(rows) / load.seconds,
            cpu_ms=(cpu_seconds(self.server.process) - before) * 1000 / len(rows),
            client_cpu=load.cpu_seconds / load.seconds,
        )

    def engine_round(self, rows: Sequence[RowRequest], concurrency: int) -> Round:
        """All rows through the engine in this process."""
        us = psutil.Process()
        before = cpu_seconds(us)
        took = self.engine.send(rows, concurrency).seconds
        return Round(rate=len(rows) / took, cpu_ms=(cpu_seconds(us) - before) * 1000 / len(rows))

    def compare_latencies(self, sizes: Sizes) -> dict[str, list[float]]:
        """Milliseconds of each text with one caller."""
        count = sizes.single_requests

        def texts(turn: int) -> Sequence[RowRequest]:
            return self.rows[turn * count : (turn + 1) * count]

        measured = interleave(
            {
                HTTP: lambda turn: list(self.post(texts(turn), 1).latencies_ms),
                IN_PROCESS: lambda turn: list(self.engine.send(texts(turn)).latencies_ms),
                BARE: lambda turn: [self.bare_ms(row) for row in texts(turn)],
            },
            sizes.single_rounds,
        )
        return {side: [took for one in rounds for took in one] for side, rounds in measured.items()}

    def post(self, rows: Sequence[RowRequest], concurrency: int) -> Load:
        """Send rows over HTTP, one a request.

        Raises:
            BenchmarkError: one was not answered, or not by its task.
        """
        bodies = tuple(
            json.dumps({"task": row.capsule.task, "text": row.inputs["text"]}) for row in rows
        )
        job = Job(
            host=HOST, port=self.server.port, path=PATH, bodies=bodies, concurrency=concurrency
        )
        load = self.load.send(job)
        (answer,) = json.loads(load.sample)["data"]
        asked = rows[0].capsule.task
        if answer["task"] != asked:
            raise BenchmarkError(f"The server was asked for {asked} and answered {answer}.")
        return load

    def bare_ms(self, row: RowRequest) -> float:
        """Milliseconds of the backbone on a text that is tokenised already, without capsule."""
        tokeniser = self.loaded.tokeniser
        encodings = tokeniser.encode([row.inputs["text"]], row.capsule.max_tokens)
        tokens = pad(encodings, tokeniser.pad_id)
        # Copied, as a GPU's work is only waited for where its result is wanted.
        return seconds(lambda: self.bare.features(tokens, Prompts()).cpu()) * 1000


@contextmanager
def set_up(context: Context, sizes: Sizes, texts: Sequence[str]) -> Iterator[Bench]:
    """Start everything that answers, and stop it at the end."""
    loaded, second = (load(context.backbone, device=context.device) for _ in range(2))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        fill_store(folder, random_capsules(loaded.info, sizes.capsules))
        server = stack.enter_context(running_server(context, folder, {"LOAD_ZOO": "false"}))
        load_sender = stack.enter_context(load_process())
        bare = shipped_executor(second, context.backbone, context.executor)
        stack.enter_context(torch_threads(bare))
        engine = shipped_engine(
            loaded, shipped_executor(loaded, context.backbone, context.executor)
        )
        served = fill_bank(engine.bank, random_capsules(loaded.info, sizes.capsules))
        yield Bench(
            server=server,
            load=load_sender,
            loaded=loaded,
            engine=stack.enter_context(in_process(engine)),
            bare=bare,
            rows=spread(texts, served),
        )
