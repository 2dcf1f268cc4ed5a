"""Servers asked over HTTP, one at a time: the others are held meanwhile."""

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from benchmarks.context import Context
from benchmarks.errors import BenchmarkError
from benchmarks.load.process import LoadProcess, load_process
from benchmarks.load.records import Job, Load
from benchmarks.random_capsules import fill_store, random_capsules
from benchmarks.rival_servers.catalogue import Rival
from benchmarks.rival_servers.processes import hold, let_go, running_rival
from benchmarks.server import HOST, running_server
from capsules.backbones.base import BackboneInfo

OURS = "ours over HTTP"
OURS_INT8 = "ours over HTTP, int8"
PATH = "/v1/classify"
TOLERANCE = 1e-4
"""By which a rival's probability may differ from that of transformers."""


@dataclass(frozen=True, slots=True)
class Round:
    """What one side did in one round.

    Attributes:
        rate: texts a second.
        p50_ms: of their latencies; None where texts do not arrive one by one.
        p99_ms: likewise.
    """

    rate: float
    p50_ms: float | None = None
    p99_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Server:
    """A server that is up, and held unless it is asked.

    Attributes:
        name: what results call it.
        process: its first one.
        port: where it listens.
        path: that texts are posted to.
        body: the request for a text, given its number.
    """

    name: str
    process: psutil.Process
    port: int
    path: str
    body: Callable[[int, str], str]

    def round(self, sender: LoadProcess, texts: Sequence[str], concurrency: int) -> Round:
        """Send texts, one a request, from so many callers.

        A few go ahead, since one that was held finds its memory cold.

        Raises:
            BenchmarkError: one was not answered.
        """
        let_go(self.process)
        try:
            self.send(sender, texts[: 2 * concurrency], concurrency)
            load = self.send(sender, texts, concurrency)
        finally:
            hold(self.process)
        p50, p99 = np.percentile(load.latencies_ms, (50, 99)).tolist()
        return Round(rate=len(texts) / load.seconds, p50_ms=p50, p99_ms=p99)

    def send(self, sender: LoadProcess, texts: Sequence[str], concurrency: int) -> Load:
        """Have the texts sent."""
        bodies = tuple(self.body(number, text) for number, text in enumerate(texts))
        return sender.send(
            Job(host=HOST, port=self.port, path=self.path, bodies=bodies, concurrency=concurrency)
        )


@contextmanager
def servers(
    context: Context,
    rivals: Sequence[Rival],
    model: Path,
    info: BackboneInfo,
    capsules: int,
    check: Callable[[Rival, Callable[[str], str]], None],
) -> Iterator[tuple[LoadProcess, list[Server]]]:
    """Start all servers, ours last, and hold them.

    Args:
        context: what ours is started as.
        rivals: that are installed.
        model: that they serve.
        info: our backbone.
        capsules: how many tasks ours serves.
        check: is given each rival, and what it replies to a text.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sender = stack.enter_context(load_process())
        up: list[Server] = []
        for number, rival in enumerate(rivals):
            context.tell(f"starting {rival.name}")
            process, port = stack.enter_context(running_rival(rival, model, folder / str(number)))
            server = Server(rival.name, process, port, rival.path, asking(rival))
            check(rival, lambda text, asked=server: asked.send(sender, [text], 1).sample)  # type: ignore[misc]
            hold(process)
            up.append(server)
        for name, settings in ours(context).items():
            data = folder / name
            fill_store(data, random_capsules(info, capsules))
            context.tell(f"starting {name}")
            running = stack.enter_context(
                running_server(context, data, {"LOAD_ZOO": "false", **settings})
            )
            hold(running.process)
            # Held ones would not hear that they are to stop.
            stack.callback(let_go, running.process)
            up.append(Server(name, running.process, running.port, PATH, asking_us(capsules)))
        yield sender, up


def ours(context: Context) -> dict[str, dict[str, str]]:
    """What our servers are told, by the name that results have for each."""
    if context.executor == "torch":  # which has no integers
        return {OURS: {}}
    return {OURS: {}, OURS_INT8: {"QUANTIZATION": "int8"}}


def asking(rival: Rival) -> Callable[[int, str], str]:
    """How a rival is asked: for its one task, whatever the text's number."""
    return lambda _, text: rival.body(text)


def asking_us(capsules: int) -> Callable[[int, str], str]:
    """How we are asked: texts have the tasks in turn."""
    return lambda number, text: json.dumps({"task": f"task-{number % capsules:05d}", "text": text})


def compare_scores(
    rival: Rival, replies: Sequence[str], expected: Sequence[dict[str, float]]
) -> None:
    """See to it that a rival computes what transformers does.

    Raises:
        BenchmarkError: it does not.
    """
    for reply, wanted in zip(replies, expected, strict=True):
        given = rival.scores(reply)
        apart = (
            max(abs(given[label] - score) for label, score in wanted.items())
            if given.keys() == wanted.keys()
            else 1.0
        )
        if apart > TOLERANCE:
            raise BenchmarkError(
                f"{rival.name} answered {dict(given)} where transformers says {wanted}: it does "
                "not run the same model, so its speed says nothing."
            )
