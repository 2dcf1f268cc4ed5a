"""How many requests a second one core takes in and answers, before any model computes.

Our server with a null executor, and with nothing behind its HTTP layer at all, against endpoints
that do nothing. Each server is a process that is held to one core; the load comes from another.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import psutil

from benchmarks.context import Context
from benchmarks.errors import BenchmarkError
from benchmarks.load.process import LoadProcess, load_process
from benchmarks.load.records import Job
from benchmarks.random_capsules import fill_store, random_capsules
from benchmarks.result import Figure, Findings, Series, at_least, figure, series
from benchmarks.sampling import interleave, middle, ratio
from benchmarks.server import HOST, RunningServer, running_server
from benchmarks.texts import load_texts
from capsules.backbones.load import load

QUESTION = "How many requests a second does one core take in and answer, before any model computes?"

OURS = "ours, null executor"
EDGE = "ours, null engine"
PLAIN = "FastAPI + pydantic"
RAW = "FastAPI, raw request + orjson"
BARE = "bare ASGI + orjson"
SIDES = {
    OURS: ("ours", "null_executor"),
    EDGE: ("ours", "null_engine"),
    PLAIN: ("plain", "fastapi_pydantic"),
    RAW: ("plain", "fastapi_orjson"),
    BARE: ("plain", "asgi_orjson"),
}
"""The module of `benchmarks.front` that starts a side, and what it is called there."""

COMMAND: tuple[str, ...] = (sys.executable, "-m")
GOAL = 1.0
LABELS = 6
PATH = "/v1/classify"
SETTINGS = {"LOAD_ZOO": "false", "TRAIN": "false"}


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of request.

    Attributes:
        name: as the tables have it.
        texts: of each request.
        requests: of one round.
    """

    name: str
    texts: int
    requests: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    Attributes:
        capsules: tasks that the requests are spread over.
        concurrency: requests under way at a time.
        rounds: of each case.
        cases: kinds of request.
    """

    capsules: int
    concurrency: int
    rounds: int
    cases: tuple[Case, ...]


FULL = Sizes(
    capsules=100,
    concurrency=32,
    rounds=12,
    cases=(Case("one text", 1, 2000), Case("32 texts", 32, 300)),
)
QUICK = Sizes(
    capsules=3,
    concurrency=2,
    rounds=2,
    cases=(Case("one text", 1, 6), Case("32 texts", 32, 2)),
)


@dataclass(frozen=True, slots=True)
class Round:
    """One round of one side.

    Attributes:
        rate: requests a second.
        cpu_us: processor time of the server, microseconds a request.
        client_cpu: part of the time for which the client kept its core busy.
    """

    rate: float
    cpu_us: float
    client_cpu: float


def measure(context: Context) -> Findings:
    """Answer the question.

    Raises:
        BenchmarkError: a request failed, a server could not be started, or there is one core only.
    """
    sizes = QUICK if context.quick else FULL
    texts = load_texts(max(case.texts * case.requests for case in sizes.cases), context.data)
    figures: list[Figure] = []
    samples: list[Series] = []
    with set_up(context, sizes) as bench:
        for case in sizes.cases:
            context.tell(f"{case.name}: {sizes.rounds} rounds")
            found = bench.compare(case, texts.texts, sizes)
            figures += figures_of(case, found)
            samples += series_of(case, found)
    return Findings(
        options={
            "backbone": bench.backbone,
            "capsules": sizes.capsules,
            "labels": LABELS,
            "concurrency": sizes.concurrency,
            "rounds": sizes.rounds,
            **{f"requests of {case.name}": case.requests for case in sizes.cases},
            "texts": texts.source,
        },
        figures=tuple(figures),
        series=tuple(samples),
        notes=(
            "Each server is one process on one core, under uvicorn with uvloop and httptools; the "
            "client, on another core, keeps its connections. While one server works the others "
            "are idle.",
            f"`{OURS}` is the server as shipped, logs and metrics included, with an executor that "
            "gives zeros: it tokenises, batches, gathers capsules and applies heads. "
            f"`{EDGE}` answers without any of that. The other three log and count nothing, and "
            f"reply with constants of the same shape, {LABELS} labels a text.",
            "On a busy machine go by the processor time: a server of several threads then gets "
            "more of the core than one of a single thread, and its rate flatters it.",
        ),
    )


def figures_of(case: Case, found: Mapping[str, Sequence[Round]]) -> list[Figure]:
    """What is made of the rounds of one case."""
    rates = {side: [one.rate for one in rounds] for side, rounds in found.items()}
    spent = {side: [one.cpu_us for one in rounds] for side, rounds in found.items()}
    goal = at_least(GOAL) if case.texts == 1 else None
    return [
        *(
            figure(
                f"{case.name}: requests a second, {ours} / {rival}",
                "ratio",
                ratio(rates[ours], rates[rival]),
                goal if (ours, rival) == (OURS, PLAIN) else None,
            )
            for ours in (OURS, EDGE)
            for rival in (PLAIN, RAW, BARE)
        ),
        *(
            figure(
                f"{case.name}: processor time a request, {PLAIN} / {ours}",
                "ratio",
                ratio(spent[PLAIN], spent[ours]),
            )
            for ours in (OURS, EDGE)
        ),
        *(
            figure(
                f"{case.name}: part of a core that the client takes, {side}",
                "ratio",
                middle([one.client_cpu for one in found[side]]),
            )
            for side in (OURS, BARE)
        ),
    ]


def series_of(case: Case, found: Mapping[str, Sequence[Round]]) -> list[Series]:
    """What the rounds of one case measured."""
    return [
        series(case.name, side, unit, values)
        for side, rounds in found.items()
        for unit, values in (
            ("requests/s", [one.rate for one in rounds]),
            ("processor µs/request", [one.cpu_us for one in rounds]),
        )
    ]


@dataclass(frozen=True, slots=True)
class Bench:
    """Every server, ready.

    Attributes:
        backbone: whose tokeniser our server has.
        servers: by side.
        load: sends requests to them.
    """

    backbone: str
    servers: Mapping[str, RunningServer]
    load: LoadProcess

    def compare(self, case: Case, texts: Sequence[str], sizes: Sizes) -> dict[str, list[Round]]:
        """The rounds of one case."""
        bodies = bodies_of(case, texts, sizes.capsules)
        sides = {
            side: partial(self.round, server, case, bodies, sizes.concurrency)
            for side, server in self.servers.items()
        }
        return interleave(sides, sizes.rounds)

    def round(
        self,
        server: RunningServer,
        case: Case,
        bodies: tuple[str, ...],
        concurrency: int,
        turn: int,
    ) -> Round:
        """Send all requests to one server.

        Raises:
            BenchmarkError: a request failed, or a reply was not of the rows that it asked for.
        """
        job = Job(host=HOST, port=server.port, path=PATH, bodies=bodies, concurrency=concurrency)
        before = cpu_seconds(server.process)
        load = self.load.send(job)
        spent = cpu_seconds(server.process) - before
        rows = json.loads(load.sample)["data"]
        if len(rows) != case.texts or rows[0]["task"] != json.loads(bodies[0])["task"]:
            raise BenchmarkError(f"The reply to {bodies[0]} was {load.sample}.")
        return Round(
            rate=len(bodies) / load.seconds,
            cpu_us=spent * 1e6 / len(bodies),
            client_cpu=load.cpu_seconds / load.seconds,
        )


def bodies_of(case: Case, texts: Sequence[str], capsules: int) -> tuple[str, ...]:
    """Requests of a case, which take the tasks in turn."""
    groups = [
        texts[number * case.texts : (number + 1) * case.texts] for number in range(case.requests)
    ]
    return tuple(
        json.dumps(
            {
                "task": f"task-{number % capsules:05d}",
                "text": list(group) if case.texts > 1 else group[0],
            }
        )
        for number, group in enumerate(groups)
    )


@contextmanager
def set_up(context: Context, sizes: Sizes) -> Iterator[Bench]:
    """Start every server on one core, and the client on another.

    Raises:
        BenchmarkError: there is one core only, or a server could not be started.
    """
    loaded = load(context.backbone)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        client_core, server_core = two_cores()
        servers = {}
        for side, (module, name) in SIDES.items():
            data = folder / name
            if side in (OURS, EDGE):
                fill_store(data, random_capsules(loaded.info, sizes.capsules, (LABELS,)))
            command = (*COMMAND, f"benchmarks.front.{module}", name)
            context.tell(f"starting {side}")
            started = running_server(replace(context, serve=command), data, SETTINGS)
            servers[side] = stack.enter_context(started)
            hold(servers[side].process, server_core)
        sender = stack.enter_context(load_process(client_core))
        yield Bench(backbone=loaded.info.id, servers=servers, load=sender)


def cpu_seconds(process: psutil.Process) -> float:
    """Processor time that a process has taken, to the nanosecond.

    By the process's own clock, as clock_getcpuclockid(3) makes it on Linux; the files that psutil
    reads count hundredths of a second.
    """
    return time.clock_gettime(~process.pid << 3 | 2)


def two_cores() -> tuple[int, int]:
    """One core for the client, and another one for the servers.

    Raises:
        BenchmarkError: this process may run on one only.
    """
    cores = os.sched_getaffinity(0)
    if len(cores) == 1:
        raise BenchmarkError(
            "This process may run on one core only; a server and its client need one each."
        )
    return min(cores), max(cores)


def hold(process: psutil.Process, core: int) -> None:
    """Keep a process to one core: each thread that it has, and what those start."""
    for thread in process.threads():
        os.sched_setaffinity(thread.id, {core})
