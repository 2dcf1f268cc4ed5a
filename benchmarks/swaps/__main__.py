"""The process that sends traffic: reads windows from standard input, answers on standard output."""

from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from benchmarks.sender import carry_out
from benchmarks.swaps.client import traffic
from benchmarks.swaps.records import Traffic, Window


def send(window: Window) -> Coroutine[Any, Any, Traffic]:
    """Send a window's traffic, with the files of its uploads read beforehand."""
    return traffic(window, [Path(path).read_bytes() for path in window.uploads])


if __name__ == "__main__":
    carry_out(Window, send)
