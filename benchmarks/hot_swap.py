"""Whether uploads disturb those who classify meanwhile.

A server in a process of its own is kept saturated by as many callers as there are connections, and
capsules are uploaded to it at a steady rate in every other stretch of time. What a version has to
answer is known beforehand, so each reply is held against the version that it names.
"""

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import numpy as np

from benchmarks.context import Context
from benchmarks.errors import BenchmarkError
from benchmarks.machine import ROOT
from benchmarks.random_capsules import fill_store
from benchmarks.result import Figure, Findings, Series, at_most, figure, series
from benchmarks.sampling import Estimate, interleave, middle, ratio
from benchmarks.server import HOST, RunningServer, running_server
from benchmarks.swaps.fleet import LABELS, Fleet, name_of
from benchmarks.swaps.process import TrafficProcess, traffic_process
from benchmarks.swaps.records import Reply, Traffic, Window
from benchmarks.texts import load_texts
from capsules.backbones.load import load

QUESTION = "Do uploads disturb those who classify meanwhile?"

QUIET = "no uploads"
SWAPPING = "uploads"
PROVING = "uploads, each with a golden example to replay"
GOLDEN = {SWAPPING: 0, PROVING: 1}
P99_GOAL = 1.1
GRAPHS = ROOT / "build" / "graphs"
"""Where servers keep the graphs that they run, so that not every one of them exports its own."""

OK, CREATED = 200, 201


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    Attributes:
        tasks: that texts are asked for, and uploads are of.
        vectors: distinct sets of learned vectors.
        texts: distinct texts.
        concurrency: callers at a time.
        rate: uploads a second.
        seconds: of one window.
        rounds: of a window of each sort.
    """

    tasks: int
    vectors: int
    texts: int
    concurrency: int
    rate: float
    seconds: float
    rounds: int

    @property
    def uploads(self) -> int:
        """In one window."""
        return round(self.rate * self.seconds)


# With 20 rounds, 10,000 uploads of each sort.
FULL = Sizes(tasks=100, vectors=16, texts=200, concurrency=64, rate=50.0, seconds=10.0, rounds=20)
QUICK = Sizes(tasks=3, vectors=2, texts=4, concurrency=4, rate=10.0, seconds=0.5, rounds=2)


@dataclass(frozen=True, slots=True)
class Stretch:
    """What one window came to.

    Attributes:
        rate: classifications a second.
        p50: of their latencies, in ms.
        p99: likewise.
        upload_rate: uploads a second; 0 where there were none.
        upload_p50: of their latencies, in ms.
        upload_p99: likewise.
    """

    rate: float
    p50: float
    p99: float
    upload_rate: float = 0.0
    upload_p50: float = 0.0
    upload_p99: float = 0.0


def measure(context: Context) -> Findings:
    """Answer the question.

    Raises:
        BenchmarkError: the server could not be started, or ended.
    """
    return findings(context, QUICK if context.quick else FULL)


def findings(context: Context, sizes: Sizes) -> Findings:
    """:func:`measure` at any size."""
    texts = load_texts(sizes.texts, context.data)
    with set_up(context, sizes, texts.texts) as bench:
        context.tell(f"{sizes.rounds} rounds of {sizes.seconds:g} s for each of three sides")
        stretches = interleave(
            {
                QUIET: lambda _: bench.stretch(0, None),
                SWAPPING: lambda _: bench.stretch(sizes.uploads, GOLDEN[SWAPPING]),
                PROVING: lambda _: bench.stretch(sizes.uploads, GOLDEN[PROVING]),
            },
            sizes.rounds,
        )
    return Findings(
        options={
            "backbone": bench.fleet.loaded.info.id,
            "device": context.device,
            "tasks": sizes.tasks,
            "labels": list(LABELS),
            "callers": sizes.concurrency,
            "uploads a second": sizes.rate,
            "seconds of a window": sizes.seconds,
            "rounds": sizes.rounds,
            "texts": texts.source,
        },
        figures=(*counted(bench), *compared(stretches)),
        series=tuple(measured(stretches)),
        notes=(
            "Every request holds one text, and names a task without a version, so it is answered "
            "by whatever version is the newest at that moment. A reply is mixed if its "
            "probabilities are not those of the very version that it names.",
            "The server, the callers and the uploads share the cores. Uploaded versions stay, and "
            "each is on disk before its upload is answered.",
            "A golden example is a text like any other: replayed, it takes its share of the model. "
            "A trainer records up to eight, so at this rate their replay alone may be more than a "
            "small machine can do.",
        ),
    )


@dataclass
class Bench:
    """A server with traffic on it.

    Attributes:
        server: the server.
        traffic: sends requests to it.
        fleet: makes versions, and knows what they answer.
        sizes: how much is asked.
        folder: for the files that are uploaded.
        fresh: numbers files, and gives each upload the next task.
        swaps: uploads that were answered with success.
        replies: classifications that were answered at all.
        failures: what failed.
        mixed: replies that no version accounts for.
    """

    server: RunningServer
    traffic: TrafficProcess
    fleet: Fleet
    sizes: Sizes
    folder: Path
    fresh: Iterator[int] = field(default_factory=count)
    swaps: int = 0
    replies: int = 0
    failures: list[str] = field(default_factory=list)
    mixed: list[str] = field(default_factory=list)

    def stretch(self, uploads: int, golden: int | None) -> Stretch:
        """One window, whose replies are all checked after its end.

        Args:
            uploads: how many there are in it.
            golden: how many examples each of them has.
        """
        files = [self.write(golden or 0) for _ in range(uploads)]
        questions = [
            (number % self.sizes.tasks, number % self.sizes.texts)
            for number in range(self.sizes.tasks * self.sizes.texts)
        ]
        window = Window(
            host=HOST,
            port=self.server.port,
            seconds=self.sizes.seconds,
            bodies=tuple(
                json.dumps({"task": name_of(task), "text": self.fleet.texts[text]})
                for task, text in questions
            ),
            concurrency=self.sizes.concurrency,
            uploads=tuple(map(str, files)),
            rate=self.sizes.rate,
        )
        found = self.traffic.send(window)
        for reply in found.replies:
            self.check(reply, *questions[reply.request])
        for reply in found.uploads:
            self.check_upload(reply)
        for path in files:
            path.unlink()
        return summary(found)

    def write(self, golden: int) -> Path:
        """A file with the next version of the next task."""
        number = next(self.fresh)
        path = self.folder / f"{number}.capsule"
        path.write_bytes(self.fleet.make(number % self.sizes.tasks, golden).data)
        return path

    def check(self, reply: Reply, task: int, text: int) -> None:
        """Hold one classification against what it has to be."""
        self.replies += 1
        if reply.status != OK:
            self.failures.append(f"a classification got {reply.status}: {reply.body}")
            return
        (row,) = json.loads(reply.body)["data"]
        if self.fleet.is_mixed(row, task, text):
            self.mixed.append(reply.body)

    def check_upload(self, reply: Reply) -> None:
        """Count one upload."""
        if reply.status == CREATED:
            self.swaps += 1
        else:
            self.failures.append(f"an upload got {reply.status}: {reply.body}")


@contextmanager
def set_up(context: Context, sizes: Sizes, texts: Sequence[str]) -> Iterator[Bench]:
    """Start a server that has a version of every task, and stop it at the end."""
    fleet = Fleet(load(context.backbone, device=context.device), sizes.tasks, sizes.vectors, texts)
    context.tell("working out what the versions have to answer")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        first = [fleet.capsule(task, 0, 0) for task in range(sizes.tasks)]
        for task in range(sizes.tasks):
            fleet.make(task)
        data = folder / "data"
        fill_store(data, iter(first))
        # Versions stay in memory, and what is asked here is not how they are paged.
        slots = sizes.tasks + 2 * sizes.uploads * (sizes.rounds + 1)
        settings = {
            "LOAD_ZOO": "false",
            "BANK_SLOTS": str(max(10_000, slots)),
            "GRAPH_DIR": str(GRAPHS),
        }
        server = stack.enter_context(running_server(context, data, settings))
        traffic = stack.enter_context(traffic_process())
        yield Bench(server, traffic, fleet, sizes, folder)


def summary(traffic: Traffic) -> Stretch:
    """What a window came to.

    Raises:
        BenchmarkError: nothing was answered in it.
    """
    if not traffic.replies:
        raise BenchmarkError("A window ended without a reply; the server's log may say why.")
    p50, p99 = np.percentile([reply.ms for reply in traffic.replies], (50, 99)).tolist()
    rate = len(traffic.replies) / traffic.seconds
    if not traffic.uploads:
        return Stretch(rate, p50, p99)
    latencies = [reply.ms for reply in traffic.uploads]
    upload_p50, upload_p99 = np.percentile(latencies, (50, 99)).tolist()
    return Stretch(rate, p50, p99, len(traffic.uploads) / traffic.seconds, upload_p50, upload_p99)


def counted(bench: Bench) -> list[Figure]:
    """What must not happen, and how often it could have."""
    failed, mixed = len(bench.failures), len(bench.mixed)
    return [
        figure("failed requests", "requests", exactly(failed), at_most(0)),
        figure("mixed replies", "replies", exactly(mixed), at_most(0)),
        figure("swaps", "uploads", exactly(bench.swaps)),
        figure("classifications that were checked", "replies", exactly(bench.replies)),
    ]


def exactly(value: float) -> Estimate:
    """What was counted rather than measured."""
    return Estimate(value, value, value)


def compared(stretches: dict[str, list[Stretch]]) -> list[Figure]:
    """What uploads change."""
    quiet = stretches[QUIET]
    figures = []
    for side in GOLDEN:
        every = stretches[side]
        figures += [
            figure(
                f"{side}: p99 / p99 without",
                "ratio",
                ratio([one.p99 for one in every], [one.p99 for one in quiet]),
                at_most(P99_GOAL) if side == SWAPPING else None,
            ),
            figure(
                f"{side}: classifications a second / those without",
                "ratio",
                ratio([one.rate for one in every], [one.rate for one in quiet]),
            ),
            figure(f"{side}: rate", "uploads/s", middle([one.upload_rate for one in every])),
            figure(f"{side}: p99 of an upload", "ms", middle([one.upload_p99 for one in every])),
        ]
    return figures


def measured(stretches: dict[str, list[Stretch]]) -> list[Series]:
    """What the windows came to."""
    return [
        *(
            series("classification, p99", side, "ms", [one.p99 for one in every])
            for side, every in stretches.items()
        ),
        *(
            series("classification, p50", side, "ms", [one.p50 for one in every])
            for side, every in stretches.items()
        ),
        *(
            series("upload, p50", side, "ms", [one.upload_p50 for one in stretches[side]])
            for side in GOLDEN
        ),
        *(
            series("classifications", side, "requests/s", [one.rate for one in every])
            for side, every in stretches.items()
        ),
    ]
