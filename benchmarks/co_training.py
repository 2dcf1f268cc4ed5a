"""What a training job costs those who classify meanwhile, and how much memory its worker takes.

One server with its worker, as `capsule serve` starts them. In each round the same requests are sent
once while a job trains and once while it is cancelled; the job is resumed for the next round.
"""

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import psutil
from pydantic import JsonValue

from benchmarks.context import Context
from benchmarks.errors import BenchmarkError
from benchmarks.load.process import LoadProcess, load_process
from benchmarks.load.records import Job, Load
from benchmarks.random_capsules import fill_store, random_capsules
from benchmarks.result import Figure, Findings, Series, figure, series
from benchmarks.sampling import Estimate, bootstrap, interleave, middle, ratio
from benchmarks.server import HOST, RunningServer, running_server
from benchmarks.texts import load_texts
from capsules.backbones.load import load

QUESTION = "What does a training job cost those who classify meanwhile?"

TRAINING = "while a job trains"
QUIET = "while none does"
JOBS = "/v1/admin/training/jobs"
LABELS = 4
ENDLESS = 1000
"""Epochs and patience of a job that is to go on until it is cancelled."""

START_TIMEOUT_S = 120.0
POLL_S = 0.2
REST_CPU_S = 0.05
REST_LOOK_S = 0.5
MIB = 1024**2


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    Attributes:
        capsules: tasks that the texts are spread over.
        rows: that the job trains on.
        batch_size: of the job.
        rounds: how often each side is measured.
        requests: of one round, by how many callers send them.
    """

    capsules: int
    rows: int
    batch_size: int
    rounds: int
    requests: Mapping[int, int]


FULL = Sizes(capsules=100, rows=2000, batch_size=32, rounds=10, requests={1: 100, 8: 200})
QUICK = Sizes(capsules=3, rows=40, batch_size=8, rounds=1, requests={1: 3, 2: 4})


def measure(context: Context) -> Findings:
    """Answer the question.

    Raises:
        BenchmarkError: a request failed, or the job did not start or ended.
    """
    sizes = QUICK if context.quick else FULL
    texts = load_texts(max(*sizes.requests.values(), sizes.rows), context.data)
    with set_up(context, sizes, texts.texts) as bench:
        figures: list[Figure] = []
        every: list[Series] = []
        for callers in sizes.requests:
            context.tell(f"{callers} at a time: {sizes.rounds} rounds")
            loads = bench.compare(callers, sizes)
            case = f"{callers} at a time"
            figures += latency_figures(case, loads)
            every += latency_series(case, loads)
        context.tell("memory")
        memory = bench.memory()
    return Findings(
        options={
            "backbone": bench.backbone,
            "device": context.device,
            "capsules": sizes.capsules,
            "rows of the job": sizes.rows,
            "batch size of the job": sizes.batch_size,
            "rounds": sizes.rounds,
            "requests of a round": {
                f"{callers} at a time": count for callers, count in sizes.requests.items()
            },
            "texts": texts.source,
        },
        figures=(*figures, *memory_figures(memory)),
        series=tuple(every),
        notes=(
            "Server and worker run as shipped: the worker on half of the cores, ten steps of "
            "priority behind the server. Every request holds one text.",
            "Unique memory (USS) is what would be free if the process ended. Weights that both "
            "processes map from one file are in neither's.",
        ),
    )


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of a process while a job trains.

    Attributes:
        rss: in memory, pages shared with other processes included.
        uss: those that would be free if the process ended.
        weights: of the backbone's files, mapped.
        shared_weights: those of them that another process maps too.
    """

    rss: int
    uss: int
    weights: int
    shared_weights: int


@dataclass(frozen=True, slots=True)
class Bench:
    """A server with its worker.

    Attributes:
        server: the server.
        load: sends requests to it.
        job: path of the job, cancelled or running.
        bodies: of the requests.
        backbone: id of the backbone.
        folder: its files.
    """

    server: RunningServer
    load: LoadProcess
    job: str
    bodies: tuple[str, ...]
    backbone: str
    folder: Path

    def compare(self, callers: int, sizes: Sizes) -> dict[str, list[Load]]:
        """Rounds with so many callers, with and without training."""
        bodies = self.bodies[: sizes.requests[callers]]

        def side(prepare: Callable[[], None]) -> Callable[[int], Load]:
            def work(_: int) -> Load:
                prepare()
                return self.load.send(
                    Job(
                        host=HOST,
                        port=self.server.port,
                        path="/v1/classify",
                        bodies=bodies,
                        concurrency=callers,
                    )
                )

            return work

        return interleave({TRAINING: side(self.train), QUIET: side(self.rest)}, sizes.rounds)

    def train(self) -> None:
        """Have the job train, and return once it has finished a batch.

        Raises:
            BenchmarkError: it does not.
        """
        if self.state()["status"] == "cancelled":
            self.post("resume")
        began: tuple[int, int] | None = None
        end = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < end:
            state = self.state()
            if state["status"] not in ("queued", "running"):
                raise BenchmarkError(f"The job is {state['status']}: {state['error']}.")
            progress = state["progress"]
            if state["status"] == "running" and progress is not None:
                now = (progress["epoch"], progress["step"])
                if began is not None and now > began:
                    return
                began = began or now
            time.sleep(POLL_S)
        raise BenchmarkError(f"The job did not train within {START_TIMEOUT_S:.0f} s.")

    def rest(self) -> None:
        """Cancel the job, and return once its worker is idle.

        Raises:
            BenchmarkError: it goes on.
        """
        if self.state()["status"] != "cancelled":
            self.post("cancel")
        worker = worker_of(self.server)
        end = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < end:
            before = sum(worker.cpu_times()[:2])
            time.sleep(REST_LOOK_S)
            if sum(worker.cpu_times()[:2]) - before < REST_CPU_S:
                return
        raise BenchmarkError(f"The worker was not idle within {START_TIMEOUT_S:.0f} s.")

    def memory(self) -> dict[str, Memory]:
        """What server and worker take while a job trains."""
        self.train()
        return {
            "server": memory_of(self.server.process, self.folder),
            "worker": memory_of(worker_of(self.server), self.folder),
        }

    def state(self) -> dict[str, Any]:
        """The job, as the server tells it."""
        return answer(self.server.client.get(self.job))

    def post(self, action: str) -> None:
        """Cancel or resume the job."""
        answer(self.server.client.post(f"{self.job}/{action}"))


@contextmanager
def set_up(context: Context, sizes: Sizes, texts: Sequence[str]) -> Iterator[Bench]:
    """Start the server and submit the job, and stop both at the end."""
    info = load(context.backbone, device=context.device).info
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        fill_store(folder, random_capsules(info, sizes.capsules))
        server = stack.enter_context(running_server(context, folder, {"LOAD_ZOO": "false"}))
        bodies = tuple(
            json.dumps({"task": f"task-{number % sizes.capsules:05}", "text": text})
            for number, text in enumerate(texts[: max(sizes.requests.values())])
        )
        job = answer(server.client.post(JOBS, json=submission(sizes, texts[: sizes.rows])))
        yield Bench(
            server=server,
            load=stack.enter_context(load_process()),
            job=f"{JOBS}/{job['id']}",
            bodies=bodies,
            backbone=info.id,
            folder=info.path,
        )


def submission(sizes: Sizes, texts: Sequence[str]) -> dict[str, JsonValue]:
    """A job that goes on until it is cancelled; what it learns is of no interest."""
    return {
        "task": "co-training",
        "epochs": ENDLESS,
        "patience": ENDLESS,
        "batch_size": sizes.batch_size,
        "train": [
            {"text": text, "label": f"label {number % LABELS}"} for number, text in enumerate(texts)
        ],
    }


def answer(reply: httpx2.Response) -> dict[str, Any]:
    """The body of a reply.

    Raises:
        BenchmarkError: it is an error.
    """
    if not reply.is_success:
        raise BenchmarkError(f"{reply.request.url} got {reply.status_code}: {reply.text}")
    body: dict[str, Any] = reply.json()
    return body


def worker_of(server: RunningServer) -> psutil.Process:
    """The process in which a server's jobs train.

    Raises:
        BenchmarkError: there is none.
    """
    for child in server.process.children(recursive=True):
        if "worker" in child.cmdline():
            return child
    raise BenchmarkError("The server has no worker.")


def memory_of(process: psutil.Process, backbone: Path) -> Memory:
    """What a process takes now."""
    information = process.memory_full_info()
    mapped = [
        area
        for area in process.memory_maps(grouped=True)
        if Path(area.path).is_relative_to(backbone.resolve())
    ]
    return Memory(
        rss=information.rss,
        uss=information.uss,
        weights=sum(area.rss for area in mapped),
        shared_weights=sum(area.shared_clean + area.shared_dirty for area in mapped),
    )


def latency_figures(case: str, loads: Mapping[str, Sequence[Load]]) -> list[Figure]:
    """What is made of the rounds with so many callers."""
    training, quiet = loads[TRAINING], loads[QUIET]
    every = {
        side: np.asarray([load.latencies_ms for load in of_side], dtype=np.float64)
        for side, of_side in loads.items()
    }
    rounds = len(training)
    figures = [
        figure(f"{case}: p{rank}, {side}", "ms", percentile(every[side], rank))
        for rank in (99, 50)
        for side in (TRAINING, QUIET)
    ]
    figures.append(
        figure(
            f"{case}: p99, {TRAINING} / {QUIET}",
            "ratio",
            bootstrap(
                rounds,
                lambda picks: ranked(every[TRAINING], 99, picks) / ranked(every[QUIET], 99, picks),
            ),
        )
    )
    figures.append(
        figure(
            f"{case}: requests a second, {TRAINING} / {QUIET}",
            "ratio",
            ratio([1 / load.seconds for load in training], [1 / load.seconds for load in quiet]),
        )
    )
    return figures


def percentile(values: np.ndarray, rank: int) -> Estimate:
    """A percentile over all rounds, [rounds, requests], with its interval over rounds."""
    return bootstrap(len(values), lambda picks: ranked(values, rank, picks))


def ranked(values: np.ndarray, rank: int, picks: np.ndarray) -> np.ndarray:
    """A percentile of the rounds at `picks`, [..., rounds], for each line of them."""
    drawn = values[picks]
    found: np.ndarray = np.percentile(drawn.reshape(*drawn.shape[:-2], -1), rank, axis=-1)
    return found


def latency_series(case: str, loads: Mapping[str, Sequence[Load]]) -> list[Series]:
    """What the rounds with so many callers measured."""
    return [
        series(case, side, "ms", [took for load in of_side for took in load.latencies_ms])
        for side, of_side in loads.items()
    ]


def memory_figures(memory: Mapping[str, Memory]) -> list[Figure]:
    """What was seen of the processes' memory."""
    figures = []
    for name, one in memory.items():
        for what, value in (
            ("resident memory (RSS)", one.rss),
            ("unique memory (USS)", one.uss),
            ("weights mapped from the backbone's file", one.weights),
            ("of these shared with the other process", one.shared_weights),
        ):
            figures.append(figure(f"{name}: {what}", "MiB", middle([value / MIB])))
    return figures
