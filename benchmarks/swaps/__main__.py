"""The process that sends traffic: reads windows from standard input, answers on standard output."""

import asyncio
import sys
from pathlib import Path

import uvloop

from benchmarks.swaps.client import traffic
from benchmarks.swaps.records import Window


def main() -> None:
    """Work until there are no more windows."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for line in sys.stdin:
            window = Window.model_validate_json(line)
            contents = [Path(path).read_bytes() for path in window.uploads]
            outcome = runner.run(traffic(window, contents))
            sys.stdout.write(outcome.model_dump_json() + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
