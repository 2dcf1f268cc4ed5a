"""The side of the benchmark that has load sent."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

from pydantic import TypeAdapter

from benchmarks.errors import BenchmarkError
from benchmarks.load.records import Failure, Job, Load
from benchmarks.machine import ROOT

OUTCOME: TypeAdapter[Load | Failure] = TypeAdapter(Load | Failure)
STOP_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class LoadProcess:
    """A process that waits for jobs."""

    jobs: IO[str]
    outcomes: IO[str]

    def send(self, job: Job) -> Load:
        """Have a job done, and wait for it.

        Raises:
            BenchmarkError: a request failed.
        """
        self.jobs.write(job.model_dump_json() + "\n")
        self.jobs.flush()
        line = self.outcomes.readline()
        if not line:
            raise BenchmarkError("The process that sends load ended; its error is above.")
        outcome = OUTCOME.validate_json(line)
        if isinstance(outcome, Failure):
            raise BenchmarkError(outcome.failure)
        return outcome


@contextmanager
def load_process(core: int | None = None) -> Iterator[LoadProcess]:
    """Start one, and end it at the end.

    Args:
        core: the only one that it may run on; None for any.
    """
    with subprocess.Popen(
        (sys.executable, "-m", "benchmarks.load"),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin is not None, "piped"
        assert child.stdout is not None, "piped"
        if core is not None:
            os.sched_setaffinity(child.pid, {core})
        try:
            yield LoadProcess(child.stdin, child.stdout)
        finally:
            child.stdin.close()
            child.wait(STOP_TIMEOUT_S)
