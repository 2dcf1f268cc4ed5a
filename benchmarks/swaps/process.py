"""The side of the benchmark that has traffic sent."""

from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.sender import Sender, sender
from benchmarks.swaps.records import Traffic, Window

TrafficProcess = Sender[Window, Traffic]


@contextmanager
def traffic_process() -> Iterator[TrafficProcess]:
    """Start a process that waits for windows, and end it at the end."""
    with sender("benchmarks.swaps", Traffic) as process:
        yield process
