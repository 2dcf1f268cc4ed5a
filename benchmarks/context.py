"""What a run of the benchmarks has in common."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from service.engine.executors import Choice

SERVE = (sys.executable, "-m", "service", "serve")


@dataclass(frozen=True, slots=True)
class Context:
    """Options that every benchmark takes.

    Attributes:
        quick: use sizes that show that it works, and nothing else.
        data: folder of labelled data sets, for real texts; None for made-up ones.
        backbone: the backbone to measure, as the server's setting has it.
        device: where it runs, likewise.
        tell: is told what is being done.
        executor: what runs it, likewise.
        serve: the command that starts a server.
    """

    quick: bool
    data: Path | None
    backbone: str
    device: str
    tell: Callable[[str], None]
    executor: Choice = "auto"
    serve: tuple[str, ...] = SERVE
