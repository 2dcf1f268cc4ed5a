"""The process that sends load: reads jobs from standard input and answers on standard output."""

import asyncio
import sys

import uvloop

from benchmarks.errors import BenchmarkError
from benchmarks.load.client import drive
from benchmarks.load.records import Failure, Job, Load


def main() -> None:
    """Work until there are no more jobs."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for line in sys.stdin:
            outcome: Load | Failure
            try:
                outcome = runner.run(drive(Job.model_validate_json(line)))
            except* (BenchmarkError, OSError) as errors:
                outcome = Failure(failure="; ".join(str(error) for error in errors.exceptions))
            print(outcome.model_dump_json(), flush=True)


if __name__ == "__main__":
    main()
