"""The side of the benchmark that has traffic sent."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

from benchmarks.errors import BenchmarkError
from benchmarks.machine import ROOT
from benchmarks.swaps.records import Traffic, Window

STOP_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class TrafficProcess:
    """A process that waits for windows."""

    windows: IO[str]
    outcomes: IO[str]

    def send(self, window: Window) -> Traffic:
        """Have a window's traffic sent, and wait for its end.

        Raises:
            BenchmarkError: the process ended.
        """
        self.windows.write(window.model_dump_json() + "\n")
        self.windows.flush()
        line = self.outcomes.readline()
        if not line:
            raise BenchmarkError("The process that sends traffic ended; its error is above.")
        return Traffic.model_validate_json(line)


@contextmanager
def traffic_process() -> Iterator[TrafficProcess]:
    """Start one, and end it at the end."""
    with subprocess.Popen(
        (sys.executable, "-m", "benchmarks.swaps"),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin is not None, "piped"
        assert child.stdout is not None, "piped"
        try:
            yield TrafficProcess(child.stdin, child.stdout)
        finally:
            child.stdin.close()
            child.wait(STOP_TIMEOUT_S)
