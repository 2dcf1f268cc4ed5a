"""How long a server takes to be ready, and what a capsule costs it in memory.

Start-up is timed from the start of the process until `/readyz` says yes. Memory is that of a
server with one capsule against one with many, both at rest after the same few requests; what lies
between them is compared with the bytes of the capsules' files.
"""

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path

import httpx2
import psutil

from benchmarks.context import Context
from benchmarks.errors import BenchmarkError
from benchmarks.random_capsules import MIXED_LABELS, TWO_LABELS, fill_store, random_capsules
from benchmarks.result import Figure, Findings, Goal, Series, at_most, figure, series
from benchmarks.sampling import interleave, middle, ratio
from benchmarks.server import GRAPHS, RunningServer, running_server
from capsules import zoo
from capsules.artefact.file import dump
from capsules.backbones.base import BackboneInfo
from capsules.backbones.load import load

QUESTION = "How soon is a server ready, and how much memory does a capsule take?"

EMPTY = "no capsules"
FIRST_ZOO = "first start, shipped capsules uploaded"
NEXT_ZOO = "next start, shipped capsules in the store"
EXPORTING = "very first start, the graph exported as well"
READY = "ready"
LISTENING = "listening"
READY_GOAL_S = 15.0

AT_START = "in the store at the start"
UPLOADED = "uploaded to the running server"
KIB = 1024
MIB = 1024**2

SETTLE_POLL_S = 0.25
SETTLE_LOOKS = 8
SETTLE_TOLERANCE = 0.002
SETTLE_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Kind:
    """Capsules whose memory is measured.

    Attributes:
        name: what they are called.
        labels: label counts, which they take in turn.
        capsules: how many there are.
        uploads: whether they are also uploaded to a running server.
        goal: what the memory that they add is held to, or None.
    """

    name: str
    labels: Sequence[int]
    capsules: int
    uploads: bool
    goal: Goal | None


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    Attributes:
        starts: of each sort.
        kinds: of capsules.
        servers: times that a server with one and one with many is started, for each kind.
        requests: that a server answers before it is looked at.
    """

    starts: int
    kinds: tuple[Kind, ...]
    servers: int
    requests: int


FULL = Sizes(
    starts=5,
    kinds=(
        Kind("1,000 of 2 to 151 labels", MIXED_LABELS, 1000, uploads=True, goal=at_most(1.2)),
        # Small files, where what a capsule takes beside its tensors weighs most.
        Kind("5,000 of 2 labels", TWO_LABELS, 5000, uploads=False, goal=None),
    ),
    servers=5,
    requests=50,
)
QUICK = Sizes(
    starts=1,
    kinds=(Kind("20 of 2 labels", TWO_LABELS, 20, uploads=True, goal=at_most(1.2)),),
    servers=1,
    requests=2,
)


def measure(context: Context) -> Findings:
    """Answer the question.

    Raises:
        BenchmarkError: a server could not be started or refused a capsule.
    """
    sizes = QUICK if context.quick else FULL
    info = load(context.backbone, device=context.device).info
    context.tell(f"start-up: {sizes.starts} of each kind")
    starts = compare_starts(context, sizes.starts)
    memory = {}
    for kind in sizes.kinds:
        context.tell(f"memory, {kind.name}: {sizes.servers} rounds")
        memory[kind] = compare_memory(context, info, kind, sizes)
    shipped = len(zoo.artefacts()) if NEXT_ZOO in starts else 0
    return Findings(
        options={
            "backbone": info.id,
            "device": context.device,
            "shipped capsules": shipped,
            "starts": sizes.starts,
            "servers": sizes.servers,
            "requests before memory is read": sizes.requests,
        },
        figures=(*start_figures(starts), *memory_figures(memory)),
        series=(*start_series(starts), *memory_series(memory)),
        notes=(
            "Files are in the page cache: the first start after a boot also reads them from disk.",
            "Resident memory (RSS) is what the goal is held against; unique memory (USS) leaves "
            "out pages shared with other processes. The allocator is left as it is shipped, so "
            "freed memory that it keeps counts, and one start takes up to 30 MiB more than "
            "another.",
        ),
    )


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a server.

    Attributes:
        listening: seconds from the start of its process until it listened.
        ready: seconds until it was ready.
        cpu: seconds of processor time until then.
    """

    listening: float
    ready: float
    cpu: float


def compare_starts(context: Context, rounds: int) -> dict[str, list[Start]]:
    """Start servers without capsules, and with the shipped ones where there are any."""
    with tempfile.TemporaryDirectory() as base:
        folder = Path(base)

        def start(name: str, load_zoo: bool, graphs: Path = GRAPHS) -> Start:
            settings = {"LOAD_ZOO": str(load_zoo), "GRAPH_DIR": str(graphs)}
            with running_server(context, folder / name, settings) as server:
                return Start(server.listening_s, server.ready_s, server.ready_cpu_s)

        def start_exporting(_: int) -> Start:
            name = f"exporting-{next(fresh)}"
            return start(name, load_zoo=True, graphs=folder / name / "graphs")

        fresh = count()
        sides = {EMPTY: lambda _: start(f"empty-{next(fresh)}", load_zoo=False)}
        if has_zoo(context):
            start("zoo", load_zoo=True)
            sides[FIRST_ZOO] = lambda _: start(f"first-{next(fresh)}", load_zoo=True)
            sides[NEXT_ZOO] = lambda _: start("zoo", load_zoo=True)
            if context.executor != "torch":
                sides[EXPORTING] = start_exporting
        return interleave(sides, rounds)


def has_zoo(context: Context) -> bool:
    """Whether a server of this backbone loads shipped capsules."""
    return context.backbone == "embedded" and bool(zoo.artefacts())


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of a process at rest.

    Attributes:
        rss: in memory, pages shared with other processes included.
        uss: those that would be free if the process ended.
    """

    rss: int
    uss: int


@dataclass(frozen=True, slots=True)
class Growth:
    """One round: a server with one capsule, and what the others added.

    Attributes:
        one: with one capsule.
        many: with all, by how they came in.
        added_bytes: of the files of all but the first.
    """

    one: Memory
    many: Mapping[str, Memory]
    added_bytes: int


def compare_memory(context: Context, info: BackboneInfo, kind: Kind, sizes: Sizes) -> list[Growth]:
    """Rounds of a server with one capsule, the same one once it has all, and one that starts so."""
    settings = {"LOAD_ZOO": "false"}
    with tempfile.TemporaryDirectory() as base:
        folder = Path(base)
        full = folder / "full"
        file_sizes = fill_store(full, random_capsules(info, kind.capsules, kind.labels))
        rounds = []
        for number in range(sizes.servers):
            single = folder / f"single-{number}"
            fill_store(single, random_capsules(info, 1, kind.labels))
            many = {}
            with running_server(context, single, settings) as server:
                one = at_rest(server, sizes.requests)
                if kind.uploads:
                    upload(server, artefacts(info, kind))
                    many[UPLOADED] = at_rest(server, sizes.requests)
            with running_server(context, full, settings) as server:
                many[AT_START] = at_rest(server, sizes.requests)
            rounds.append(Growth(one=one, many=many, added_bytes=sum(file_sizes[1:])))
        return rounds


def artefacts(info: BackboneInfo, kind: Kind) -> Iterator[bytes]:
    """The files of all capsules but the first."""
    for capsule in islice(random_capsules(info, kind.capsules, kind.labels), 1, None):
        yield dump(capsule)


def upload(server: RunningServer, files: Iterator[bytes]) -> None:
    """Upload capsules over HTTP.

    Raises:
        BenchmarkError: the server refused one.
    """
    for data in files:
        reply = server.client.post(
            "/v1/capsules", content=data, headers={"Content-Type": "application/octet-stream"}
        )
        if reply.status_code != httpx2.codes.CREATED:
            raise BenchmarkError(f"An upload got {reply.status_code}: {reply.text}")


def at_rest(server: RunningServer, requests: int) -> Memory:
    """A server's memory, after a few requests and once it does not change any more.

    Raises:
        BenchmarkError: a request failed, or the memory does not settle.
    """
    for _ in range(requests):
        reply = server.client.post(
            "/v1/classify", json={"task": "task-00000", "text": "how much memory is that"}
        )
        if reply.status_code != httpx2.codes.OK:
            raise BenchmarkError(f"A request got {reply.status_code}: {reply.text}")
    end = time.monotonic() + SETTLE_TIMEOUT_S
    looks: list[Memory] = []
    while time.monotonic() < end:
        looks.append(memory_of(server.process))
        last = [look.rss for look in looks[-SETTLE_LOOKS:]]
        if len(last) == SETTLE_LOOKS and max(last) - min(last) <= SETTLE_TOLERANCE * min(last):
            return looks[-1]
        time.sleep(SETTLE_POLL_S)
    raise BenchmarkError(
        f"The server's memory still changed after {SETTLE_TIMEOUT_S:.0f} s at rest."
    )


def memory_of(process: psutil.Process) -> Memory:
    """What a process takes now."""
    information = process.memory_full_info()
    return Memory(rss=information.rss, uss=information.uss)


def start_figures(starts: Mapping[str, Sequence[Start]]) -> list[Figure]:
    """What is made of the starts."""
    return [
        figure(
            f"ready, {name}",
            "s",
            middle([start.ready for start in every]),
            # Exporting is once for a backbone, and a graph can be brought along.
            None if name == EXPORTING else at_most(READY_GOAL_S),
        )
        for name, every in starts.items()
    ]


def start_series(starts: Mapping[str, Sequence[Start]]) -> list[Series]:
    """What the starts measured."""
    return [
        series(name, side, "s", values)
        for name, every in starts.items()
        for side, values in (
            (LISTENING, [start.listening for start in every]),
            (READY, [start.ready for start in every]),
            ("processor time until then", [start.cpu for start in every]),
        )
    ]


def memory_figures(memory: Mapping[Kind, Sequence[Growth]]) -> list[Figure]:
    """What is made of the servers' memory."""
    figures = []
    for kind, rounds in memory.items():
        for way in ways(rounds):
            name = f"{kind.name}, {way}"
            resident = [growth.many[way].rss - growth.one.rss for growth in rounds]
            unique = [growth.many[way].uss - growth.one.uss for growth in rounds]
            files = [growth.added_bytes for growth in rounds]
            beside = [
                (added - own) / (kind.capsules - 1) / KIB
                for added, own in zip(resident, files, strict=True)
            ]
            figures += [
                figure(
                    f"{name}: memory added / bytes of the files, RSS",
                    "ratio",
                    ratio(resident, files),
                    kind.goal,
                ),
                figure(
                    f"{name}: memory added / bytes of the files, USS",
                    "ratio",
                    ratio(unique, files),
                ),
                figure(f"{name}: memory of a capsule beyond its file", "KiB", middle(beside)),
            ]
    return figures


def ways(rounds: Sequence[Growth]) -> list[str]:
    """How capsules came in, in every round."""
    return sorted(rounds[0].many)


def memory_series(memory: Mapping[Kind, Sequence[Growth]]) -> list[Series]:
    """What the servers' memory was, and what the files come to."""
    found = []
    for kind, rounds in memory.items():
        states = {"one capsule": [growth.one for growth in rounds]} | {
            f"many, {way}": [growth.many[way] for growth in rounds] for way in ways(rounds)
        }
        for side, every in states.items():
            found.append(series(f"{kind.name}, RSS", side, "MiB", [one.rss / MIB for one in every]))
            found.append(series(f"{kind.name}, USS", side, "MiB", [one.uss / MIB for one in every]))
        added = rounds[0].added_bytes / MIB
        found.append(series(f"{kind.name}, files", "bytes of the files added", "MiB", [added]))
    return found
