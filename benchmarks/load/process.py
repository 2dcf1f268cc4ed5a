"""The side of the benchmark that has load sent."""

from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.load.records import Job, Load
from benchmarks.sender import Sender, sender

LoadProcess = Sender[Job, Load]


@contextmanager
def load_process(core: int | None = None) -> Iterator[LoadProcess]:
    """Start a process that waits for jobs, and end it at the end.

    Args:
        core: the only one that it may run on; None for any.
    """
    with sender("benchmarks.load", Load, core) as process:
        yield process
