"""How much memory capsules take by the thousand, and whether a server's memory stays as it is.

Each count of capsules has a server of its own, started on a store that holds them. What lies
between it and a server with one capsule is compared with the bytes of the capsules' files. Servers
are then left to take in and give up capsules, to answer texts of all lengths, and to serve many
more tasks than fit into the bank, and are looked at before and after.
"""

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random

import httpx2
import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.context import Context
from benchmarks.errors import BenchmarkError
from benchmarks.machine import ROOT
from benchmarks.random_capsules import MIXED_LABELS, fill_store, random_capsules
from benchmarks.result import Figure, Findings, Series, at_least, at_most, figure, series
from benchmarks.sampling import Estimate, interleave, middle, ratio
from benchmarks.server import HOST, RunningServer, running_server
from benchmarks.startup_memory import MIB, at_rest, memory_of
from benchmarks.swaps.process import TrafficProcess, traffic_process
from benchmarks.swaps.records import Traffic, Window
from benchmarks.texts import WORDS
from capsules.artefact.file import dump
from capsules.backbones.base import BackboneInfo
from capsules.backbones.load import load

QUESTION = "How much memory do thousands of capsules take, and does it stay that way?"

FEW_LABELS = (2, 3, 6, 20)
"""Label counts of the capsules that are more than fit into the bank."""

LOAD_GOAL_S = 10.0
MEMORY_GOAL = 1.2
DRIFT_GOAL = 2.0
PAGING_GOAL = 0.8
GRAPHS = ROOT / "build" / "graphs"
"""Where servers keep the graphs that they run, so that not every one of them exports its own."""

OK = 200
CONCURRENCY = 16
BODIES = 5000
"""Distinct requests of one window."""

PLACES_A_HELD_TASK = 50
"""Of so many of the bank's places one is for a task that is asked for in every window."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    Attributes:
        counts: capsules that a server starts with, ascending, the first of them 1.
        servers: rounds of a server for each count.
        requests: that a server answers before it is looked at.
        cycles: capsules that are uploaded and deleted, after a tenth as many for warming up.
        soak_s: seconds of answering texts of random lengths.
        window_s: seconds between two looks at a server that answers.
        words: most words of a text.
        paged: capsules that are more than the bank holds.
        slots: how many it holds.
        paging_rounds: of a window on those that it holds, and one on all.
    """

    counts: tuple[int, ...]
    servers: int
    requests: int
    cycles: int
    soak_s: float
    window_s: float
    words: int
    paged: int
    slots: int
    paging_rounds: int


FULL = Sizes(
    counts=(1, 100, 1_000, 10_000),
    servers=3,
    requests=50,
    cycles=1_000,
    soak_s=600.0,
    window_s=10.0,
    words=300,
    paged=100_000,
    slots=10_000,
    paging_rounds=6,
)
# No fewer places than two batches may hold at once.
QUICK = Sizes(
    counts=(1, 5, 20),
    servers=1,
    requests=2,
    cycles=10,
    soak_s=1.5,
    window_s=0.3,
    words=20,
    paged=300,
    slots=128,
    paging_rounds=2,
)


def measure(context: Context) -> Findings:
    """Answer the question.

    Raises:
        BenchmarkError: a server could not be started, or refused something.
    """
    return findings(context, QUICK if context.quick else FULL)


def findings(context: Context, sizes: Sizes) -> Findings:
    """:func:`measure` at any size."""
    info = load(context.backbone, device=context.device).info
    with tempfile.TemporaryDirectory() as base:
        folder = Path(base)
        growth = measure_growth(context, info, sizes, folder)
        cycles = measure_cycles(context, info, sizes, folder)
        soak = measure_soak(context, sizes, folder)
        paging = measure_paging(context, info, sizes, folder)
    return Findings(
        options={
            "backbone": info.id,
            "device": context.device,
            "capsules": list(sizes.counts),
            "labels": list(MIXED_LABELS),
            "rounds of servers": sizes.servers,
            "cycles of upload and deletion": sizes.cycles,
            "seconds of texts of random lengths": sizes.soak_s,
            "words of such a text": f"1 to {sizes.words}",
            "capsules beyond the bank": sizes.paged,
            "labels of these": list(FEW_LABELS),
            "places in the bank": sizes.slots,
        },
        figures=(*growth.figures(), *cycles.figures(), *soak.figures(), *paging.figures()),
        series=(*growth.series(), *cycles.series(), *soak.series(), *paging.series()),
        notes=(
            "Memory is what is resident (RSS), pages shared with other processes included. The "
            "allocator is left as it is shipped, so freed memory that it keeps counts, and one "
            "start takes up to 30 MiB more than another.",
            "Drift is the median of the last fifth of the looks over that of the first fifth, after "
            "a warm-up.",
            "Beyond the bank, every capsule of a batch may have to be brought to where the model "
            "is; texts that are spread over all tasks alike are the worst that can come. What it is "
            f"set against is a {PLACES_A_HELD_TASK}th as many tasks as the bank has places, which stay there.",
        ),
    )


# --- memory and time of a start ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Started:
    """A server that has come to rest after its start.

    Attributes:
        rss: its memory in bytes.
        load_s: seconds that it took to load the capsules.
        ready_s: from the start of its process until it was ready.
    """

    rss: int
    load_s: float
    ready_s: float


@dataclass(frozen=True, slots=True)
class Growth:
    """Servers with more and more capsules.

    Attributes:
        started: in each round, by the count of capsules.
        added: bytes of the files of all but the first capsule, by count.
    """

    started: Mapping[int, Sequence[Started]]
    added: Mapping[int, int]

    def figures(self) -> list[Figure]:
        """What is made of them."""
        most = max(self.started)
        one = [start.rss for start in self.started[1]]
        found = [
            figure(
                f"{most:,} capsules: loaded in",
                "s",
                middle([start.load_s for start in self.started[most]]),
                at_most(LOAD_GOAL_S),
            )
        ]
        # Of fewer, a start's own ups and downs are as much as the capsules.
        for count in sorted(self.started)[-2:]:
            more = [
                start.rss - alone for start, alone in zip(self.started[count], one, strict=True)
            ]
            found.append(
                figure(
                    f"{count:,} capsules: memory added / bytes of the files",
                    "ratio",
                    ratio(more, [self.added[count]] * len(more)),
                    at_most(MEMORY_GOAL) if count == most else None,
                )
            )
        return found

    def series(self) -> list[Series]:
        """What they measured."""
        found = []
        for count, starts in self.started.items():
            case = f"{count:,} capsules"
            found.append(series(case, "RSS", "MiB", [one.rss / MIB for one in starts]))
            if count > 1:
                added = self.added[count] / MIB
                found.append(series(case, "bytes of the files added", "MiB", [added]))
            found.append(series(case, "loading", "s", [one.load_s for one in starts]))
            found.append(series(case, "until ready", "s", [one.ready_s for one in starts]))
        return found


def measure_growth(context: Context, info: BackboneInfo, sizes: Sizes, folder: Path) -> Growth:
    """Start servers on stores of every size."""
    added = {}
    for count in sizes.counts:
        context.tell(f"a store of {count:,} capsules")
        files = fill_store(folder / f"{count}", random_capsules(info, count, MIXED_LABELS))
        added[count] = sum(files[1:])

    def start(count: int) -> Started:
        with running_server(context, folder / f"{count}", settings()) as server:
            rss = at_rest(server, sizes.requests).rss
            return Started(rss, metric(server, "capsule_start_load_seconds"), server.ready_s)

    # One start more, whose graph is exported and whose files are read for the first time.
    start(1)
    context.tell(f"memory: {sizes.servers} rounds of servers")

    def side(count: int) -> Callable[[int], Started]:
        return lambda _: start(count)

    sides = {f"{count}": side(count) for count in sizes.counts}
    started = interleave(sides, sizes.servers, warm_up=0)
    return Growth({int(count): every for count, every in started.items()}, added)


def settings(**more: str) -> dict[str, str]:
    """A server's settings."""
    return {"LOAD_ZOO": "false", "GRAPH_DIR": str(GRAPHS), **more}


def metric(server: RunningServer, name: str, **labels: str) -> float:
    """A number that a server tells of itself.

    Raises:
        BenchmarkError: it does not.
    """
    for family in text_string_to_metric_families(server.client.get("/metrics").text):
        for sample in family.samples:
            if sample.name == name and sample.labels == labels:
                return sample.value
    raise BenchmarkError(f"The server tells no {name} with the labels {labels}.")


# --- drift ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Drift:
    """Looks at a server's memory while it does the same thing over and over.

    Attributes:
        name: what it does.
        looks: bytes, the first after a warm-up.
    """

    name: str
    looks: Sequence[int]

    @property
    def percent(self) -> Estimate:
        """How far the end is from the beginning: the medians of a fifth of the looks each."""
        fifth = max(1, len(self.looks) // 5)
        before, after = np.array(self.looks[:fifth]), np.array(self.looks[-fifth:])
        value = (np.median(after) / np.median(before) - 1) * 100
        low, high = (
            (end / np.median(before) - 1) * 100 for end in (float(after.min()), float(after.max()))
        )
        return Estimate(float(value), float(low), float(high))

    def figures(self) -> list[Figure]:
        """What is made of them."""
        return [figure(f"{self.name}: drift of memory", "%", self.percent, at_most(DRIFT_GOAL))]

    def series(self) -> list[Series]:
        """The looks."""
        return [series(self.name, "RSS", "MiB", [look / MIB for look in self.looks])]


def measure_cycles(context: Context, info: BackboneInfo, sizes: Sizes, folder: Path) -> Drift:
    """Upload capsules and delete them again, on a server that has others."""
    context.tell(f"{sizes.cycles:,} cycles of upload and deletion")
    looks = []
    with running_server(context, folder / f"{sizes.counts[-2]}", settings()) as server:
        at_rest(server, sizes.requests)
        files = passing(info, sizes.counts[-2])
        for data in islice(files, max(1, sizes.cycles // 10)):
            cycle(server, data)
        every = max(1, sizes.cycles // 50)
        for number, data in enumerate(islice(files, sizes.cycles)):
            cycle(server, data)
            if number % every == 0:
                looks.append(memory_of(server.process).rss)
        looks.append(memory_of(server.process).rss)
    return Drift(f"{sizes.cycles:,} cycles of upload and deletion", looks)


def passing(info: BackboneInfo, after: int) -> Iterator[bytes]:
    """Files of capsules that no store of so many has."""
    for capsule in random_capsules(info, 10**9, MIXED_LABELS):
        manifest = capsule.manifest
        number = int(manifest.task.removeprefix("task-")) + after
        moved = manifest.model_copy(update={"task": f"passing-{number}"})
        yield dump(type(capsule)(manifest=moved, tensors=capsule.tensors))


def cycle(server: RunningServer, data: bytes) -> None:
    """Upload a capsule, and delete its task.

    Raises:
        BenchmarkError: the server refused.
    """
    uploaded = server.client.post(
        "/v1/capsules", content=data, headers={"Content-Type": "application/octet-stream"}
    )
    expect(uploaded, httpx2.codes.CREATED)
    expect(server.client.delete(f"/v1/capsules/{uploaded.json()['task']}"), httpx2.codes.OK)


def expect(reply: httpx2.Response, status: int) -> None:
    """Stop where a server did not do what it was asked to.

    Raises:
        BenchmarkError: it did not.
    """
    if reply.status_code != status:
        raise BenchmarkError(f"A request got {reply.status_code}: {reply.text}")


def measure_soak(context: Context, sizes: Sizes, folder: Path) -> Drift:
    """Answer texts of random lengths, all the time."""
    context.tell(f"{sizes.soak_s:g} s of texts of random lengths")
    random = Random(0)
    tasks, looks = sizes.counts[-2], []
    with ExitStack() as stack:
        data = folder / f"{tasks}"
        server = stack.enter_context(running_server(context, data, settings()))
        traffic = stack.enter_context(traffic_process())
        end = time.monotonic() + sizes.soak_s * 1.1
        while time.monotonic() < end:
            bodies = [
                body(random.randrange(tasks), random_text(random, sizes.words))
                for _ in range(BODIES)
            ]
            busy(traffic, server, bodies, sizes.window_s)
            looks.append(memory_of(server.process).rss)
    return Drift(
        f"{sizes.soak_s:g} s of texts of random lengths", looks[len(looks) // 10 or 1 :] or looks
    )


def body(task: int, text: str) -> str:
    """A request."""
    return json.dumps({"task": f"task-{task:05d}", "text": text})


def random_text(random: Random, words: int) -> str:
    """Up to so many words; any number of them is as likely as any other."""
    return " ".join(random.choices(WORDS.split(), k=random.randint(1, words)))


def busy(
    traffic: TrafficProcess, server: RunningServer, bodies: Sequence[str], seconds: float
) -> Traffic:
    """Keep a server busy for a while.

    Raises:
        BenchmarkError: it failed to answer one.
    """
    window = Window(
        host=HOST,
        port=server.port,
        seconds=seconds,
        bodies=tuple(bodies),
        concurrency=CONCURRENCY,
    )
    found = traffic.send(window)
    for reply in found.replies:
        if reply.status != OK:
            raise BenchmarkError(f"A request got {reply.status}: {reply.body}")
    return found


# --- beyond the bank --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Busy:
    """A window in which a server was kept busy.

    Attributes:
        rate: requests that it answered a second.
        page_ins: capsules that it brought into the bank, a request.
    """

    rate: float
    page_ins: float


@dataclass(frozen=True, slots=True)
class Paging:
    """A server with more capsules than its bank holds.

    Attributes:
        capsules: how many.
        load_s: seconds that it took to load them.
        rss: its memory after that, in bytes.
        alone: that of a server with one.
        files: bytes of the files of all but one.
        device: bytes of the capsules that the bank holds, as it tells.
        host: of the others.
        few: windows on tasks that it holds.
        all: on all tasks alike.
        drift: of its memory meanwhile.
    """

    capsules: int
    load_s: float
    rss: int
    alone: int
    files: int
    device: float
    host: float
    few: Sequence[Busy]
    all: Sequence[Busy]
    drift: Drift

    @property
    def name(self) -> str:
        """What it is called."""
        return f"{self.capsules:,} capsules, more than the bank holds"

    def figures(self) -> list[Figure]:
        """What is made of it."""
        added = self.rss - self.alone
        return [
            figure(f"{self.name}: loaded in", "s", middle([self.load_s])),
            figure(
                f"{self.name}: memory added / bytes of the files",
                "ratio",
                ratio([added], [self.files]),
            ),
            figure(
                f"{self.name}: requests a second on all tasks / on those that it holds",
                "ratio",
                ratio([one.rate for one in self.all], [one.rate for one in self.few]),
                at_least(PAGING_GOAL),
            ),
            *(
                figure(
                    f"{self.name}: brought in, a request on {tasks}",
                    "capsules",
                    middle([one.page_ins for one in windows]),
                )
                for tasks, windows in (("all tasks", self.all), ("those that it holds", self.few))
            ),
            *self.drift.figures(),
        ]

    def series(self) -> list[Series]:
        """What it measured."""
        return [
            series(self.name, "RSS", "MiB", [self.rss / MIB]),
            series(self.name, "bytes of the files added", "MiB", [self.files / MIB]),
            series(self.name, "on the device, as it tells", "MiB", [self.device / MIB]),
            series(self.name, "in host memory, as it tells", "MiB", [self.host / MIB]),
            series(
                self.name,
                "tasks that the bank holds",
                "requests/s",
                [one.rate for one in self.few],
            ),
            series(self.name, "all tasks alike", "requests/s", [one.rate for one in self.all]),
        ]


def measure_paging(context: Context, info: BackboneInfo, sizes: Sizes, folder: Path) -> Paging:
    """Start a server on more capsules than its bank holds, and ask for all of them."""
    context.tell(f"a store of {sizes.paged:,} capsules")
    data = folder / "paged"
    files = fill_store(data, random_capsules(info, sizes.paged, FEW_LABELS))
    context.tell(f"{sizes.paged:,} capsules with {sizes.slots:,} places")
    random = Random(0)
    with ExitStack() as stack:
        with running_server(context, folder / "1", settings()) as server:
            alone = at_rest(server, sizes.requests).rss
        slots = settings(BANK_SLOTS=str(sizes.slots))
        server = stack.enter_context(running_server(context, data, slots))
        traffic = stack.enter_context(traffic_process())
        rss = at_rest(server, sizes.requests).rss
        looks = []

        def window(tasks: int) -> Busy:
            bodies = [
                body(random.randrange(tasks), random_text(random, min(20, sizes.words)))
                for _ in range(BODIES)
            ]
            before = metric(server, "capsule_bank_page_ins_total")
            found = busy(traffic, server, bodies, sizes.window_s)
            brought = metric(server, "capsule_bank_page_ins_total") - before
            looks.append(memory_of(server.process).rss)
            return Busy(len(found.replies) / found.seconds, brought / len(found.replies))

        # So few that each of them is asked for in every window, and none is ever the longest unused.
        few = max(1, sizes.slots // PLACES_A_HELD_TASK)
        windows = interleave(
            {"few": lambda _: window(few), "all": lambda _: window(sizes.paged)},
            sizes.paging_rounds,
        )
        return Paging(
            capsules=sizes.paged,
            load_s=metric(server, "capsule_start_load_seconds"),
            rss=rss,
            alone=alone,
            files=sum(files[1:]),
            device=metric(server, "capsule_bank_bytes", tier="device"),
            host=metric(server, "capsule_bank_bytes", tier="host"),
            few=windows["few"],
            all=windows["all"],
            drift=Drift(
                f"{sizes.paged:,} capsules that come and go in the bank",
                looks[-2 * sizes.paging_rounds :],  # without those of the warm-up
            ),
        )
