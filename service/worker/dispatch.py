"""From the ledger's queue to the executor: which jobs to hand over, and which to hand over again."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from service.jobs.ledger import Ledger
from service.jobs.slots import stale_before
from service.worker.claims import Claims

LOOKED_AT = 100
"""The queue's first jobs; more never fit into one worker."""

Run = tuple[str, int]
"""Id of a job, and the run."""


@dataclass(frozen=True, slots=True)
class Handed:
    """What the executor knows of a run that it was handed.

    Attributes:
        state: `waiting` for a process to take it; `taken` by one; `over`.
        since: when it came to be so.
        here: whether it was this process, or an earlier one in its slot, that took it.
    """

    state: Literal["waiting", "taken", "over"]
    since: datetime
    here: bool = False


class Executor(Protocol):
    """Runs workflows durably, as far as the dispatcher needs it."""

    def known(self, runs: Collection[Run]) -> Mapping[Run, Handed]:
        """What it has been handed, of these runs."""
        ...

    def hand_over(self, run: Run) -> None:
        """Have a process take up a run; once only, however often it is called."""
        ...

    def forget(self, run: Run) -> None:
        """Forget a run, so that it can be handed over anew."""
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now.

    Attributes:
        hand_over: runs to hand over.
        forget: those of them that have to be forgotten first.
    """

    hand_over: tuple[Run, ...] = ()
    forget: tuple[Run, ...] = ()


def plan(
    queued: Sequence[Run],
    known: Mapping[Run, Handed],
    working: Collection[Run],
    room: int,
    lost_before: datetime,
) -> Plan:
    """Fill the room with the first jobs of the queue.

    No more are handed over than can begin, so that the order stays the ledger's. A run that is
    queued although a process took it was lost before the ledger heard of it: the process died, or
    could not write. The ledger is the truth, so it is handed over again.

    Args:
        queued: the first of the ledger's queue, in order.
        known: what the executor knows of them.
        working: what this process works on; the ledger may not have heard of it yet.
        room: how many more this process can work on.
        lost_before: what was taken before then, and is still queued, is lost.
    """
    hand_over: list[Run] = []
    forget: list[Run] = []
    for run in queued:
        if room <= 0:
            break
        if run in working:
            continue
        handed = known.get(run)
        if handed is None:
            hand_over.append(run)
        elif handed.state != "waiting" and handed.since < lost_before:
            forget.append(run)
            hand_over.append(run)
        elif handed.state == "over" or (handed.state == "taken" and not handed.here):
            continue
        room -= 1
    return Plan(tuple(hand_over), tuple(forget))


class Dispatcher:
    """Hands queued jobs over to the executor.

    Args:
        ledger: says what is queued.
        executor: runs it.
        claims: what this process works on.
        concurrency: jobs that it works on at once.
        clock: tells the time, aware.
    """

    def __init__(
        self,
        ledger: Ledger,
        executor: Executor,
        claims: Claims,
        concurrency: int,
        clock: Callable[[], datetime],
    ) -> None:
        self.ledger = ledger
        self.executor = executor
        self.claims = claims
        self.concurrency = concurrency
        self.clock = clock

    def dispatch(self) -> None:
        """Look at the queue once.

        Raises:
            StoreError: the ledger cannot be read.
        """
        # In this order, in which a run goes from the queue to the executor and is worked on: whatever
        # happens meanwhile, it is seen in one of the three.
        queued = self.ledger.queued()[:LOOKED_AT]
        working = self.claims.runs()
        room = self.concurrency - len(working)
        if not queued or room <= 0:
            return
        known = self.executor.known(queued)
        todo = plan(queued, known, working, room, stale_before(self.clock()))
        for run in todo.forget:
            self.executor.forget(run)
        for run in todo.hand_over:
            self.executor.hand_over(run)
