"""A process that sends requests on behalf of a benchmark, which has its own interpreter to itself.

The two tell each other records over a pipe, a line of JSON at a time: an order what to send, and an
outcome what came of it.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, Generic, TypeVar

import uvloop
from pydantic import TypeAdapter

from benchmarks.errors import BenchmarkError
from benchmarks.machine import ROOT
from benchmarks.record import Record

Order = TypeVar("Order", bound=Record)
Outcome = TypeVar("Outcome", bound=Record)

STOP_TIMEOUT_S = 10.0


class Failure(Record):
    """Why an order was given up."""

    failure: str


@dataclass(frozen=True)
class Sender(Generic[Order, Outcome]):
    """The benchmark's side: a process that waits for orders.

    Attributes:
        kind: what outcomes are.
        orders: where they are written to.
        outcomes: where they are read from.
    """

    kind: type[Outcome]
    orders: IO[str]
    outcomes: IO[str]

    def send(self, order: Order) -> Outcome:
        """Have an order carried out, and wait for it.

        Raises:
            BenchmarkError: it could not be, or the process ended.
        """
        self.orders.write(order.model_dump_json() + "\n")
        self.orders.flush()
        line = self.outcomes.readline()
        if not line:
            raise BenchmarkError("The process that sends requests ended; its error is above.")
        kinds: TypeAdapter[Outcome | Failure] = TypeAdapter(self.kind | Failure)  # type: ignore[arg-type]
        outcome = kinds.validate_json(line)
        if isinstance(outcome, Failure):
            raise BenchmarkError(outcome.failure)
        return outcome


@contextmanager
def sender(
    module: str, kind: type[Outcome], core: int | None = None
) -> Iterator[Sender[Any, Outcome]]:
    """Start a process that waits for orders, and end it at the end.

    Args:
        module: is run, and calls :func:`carry_out`.
        kind: what its outcomes are.
        core: the only one that it may run on; None for any.
    """
    with subprocess.Popen(
        (sys.executable, "-m", module),
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
            yield Sender(kind, child.stdin, child.stdout)
        finally:
            child.stdin.close()
            child.wait(STOP_TIMEOUT_S)


def carry_out(kind: type[Order], send: Callable[[Order], Coroutine[Any, Any, Record]]) -> None:
    """The process's side: carry orders out until there are no more.

    Args:
        kind: what orders are.
        send: does what one says.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for line in sys.stdin:
            order = kind.model_validate_json(line)
            outcome: Record
            try:
                outcome = runner.run(send(order))
            except* (BenchmarkError, OSError) as errors:
                outcome = Failure(failure="; ".join(map(str, errors.exceptions)))
            sys.stdout.write(outcome.model_dump_json() + "\n")
            sys.stdout.flush()
