from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from service.jobs.sql import SqlLedger
from service.worker.claims import Claims
from service.worker.dispatch import Dispatcher, Handed, Plan, Run, plan
from tests.service.worker.conftest import TOKEN, Begin, Submit

NOW = datetime(2026, 1, 2, tzinfo=UTC)
A, B, C = ("a", 1), ("b", 1), ("c", 1)
WAITING = Handed("waiting", NOW - timedelta(days=1))
TAKEN = Handed("taken", NOW - timedelta(seconds=1))
HERE = replace(TAKEN, here=True)
LOST = Handed("taken", NOW - timedelta(seconds=30))
OVER = Handed("over", NOW - timedelta(seconds=1))
SETTLED = Handed("over", NOW - timedelta(seconds=30))


@pytest.mark.parametrize(
    ("known", "working", "room", "expected"),
    [
        ({}, (), 1, Plan((A,))),
        ({}, (), 2, Plan((A, B))),
        ({}, (), 9, Plan((A, B, C))),
        ({}, (), 0, Plan()),
        ({A: WAITING}, (), 1, Plan()),
        ({A: WAITING}, (), 2, Plan((B,))),
        # Being taken up elsewhere, or worked on: it takes no room of what is left.
        ({A: TAKEN}, (), 1, Plan((B,))),
        ({A: LOST}, (A,), 1, Plan((B,))),
        # About to be worked on here.
        ({A: HERE}, (), 1, Plan()),
        ({A: HERE}, (), 2, Plan((B,))),
        ({A: replace(LOST, here=True)}, (), 1, Plan((A,), (A,))),
        ({A: OVER}, (), 1, Plan((B,))),
        # The ledger never heard of it.
        ({A: LOST}, (), 1, Plan((A,), (A,))),
        ({A: SETTLED}, (), 2, Plan((A, B), (A,))),
    ],
)
def test_the_room_is_filled_with_the_first_of_the_queue(
    known: Mapping[Run, Handed], working: Collection[Run], room: int, expected: Plan
) -> None:
    assert plan([A, B, C], known, working, room, NOW - timedelta(seconds=20)) == expected


def test_nothing_is_handed_over_from_an_empty_queue() -> None:
    assert plan([], {}, (), 5, NOW) == Plan()


class Executor:
    """Keeps what it is handed."""

    def __init__(self) -> None:
        self.runs: dict[Run, Handed] = {}
        self.calls: list[tuple[str, Run]] = []

    def known(self, runs: Collection[Run]) -> Mapping[Run, Handed]:
        return {run: self.runs[run] for run in runs if run in self.runs}

    def hand_over(self, run: Run) -> None:
        self.calls.append(("hand over", run))
        self.runs.setdefault(run, Handed("waiting", NOW))

    def forget(self, run: Run) -> None:
        self.calls.append(("forget", run))
        del self.runs[run]


def test_queued_jobs_go_to_the_executor_in_their_order(ledger: SqlLedger, submit: Submit) -> None:
    jobs = [submit() for _ in range(3)]
    executor = Executor()
    claims = Claims(TOKEN)
    dispatcher = Dispatcher(ledger, executor, claims, 2, lambda: NOW)
    dispatcher.dispatch()
    dispatcher.dispatch()
    assert executor.calls == [("hand over", (job.id, 1)) for job in jobs[:2]]
    with claims.hold(jobs[0].id, 1), claims.hold(jobs[1].id, 1):
        dispatcher.dispatch()
    assert len(executor.calls) == 2
    executor.runs[jobs[0].id, 1] = LOST
    dispatcher.dispatch()
    assert executor.calls[2:] == [("forget", (jobs[0].id, 1)), ("hand over", (jobs[0].id, 1))]


def test_what_is_not_queued_is_not_handed_over(ledger: SqlLedger, begin: Begin) -> None:
    begin()
    executor = Executor()
    Dispatcher(ledger, executor, Claims(TOKEN), 1, lambda: NOW).dispatch()
    assert executor.calls == []


def test_a_job_that_is_taken_up_meanwhile_leaves_no_room(ledger: SqlLedger, submit: Submit) -> None:
    """The queue was read before, and what is worked on after."""
    first, _ = submit(), submit()
    claims = Claims(TOKEN)
    executor = Executor()

    class Overtaken(SqlLedger):
        def queued(self) -> list[tuple[str, int]]:
            found = super().queued()
            held.enter_context(claims.hold(first.id, 1))
            return found

    with ExitStack() as held:
        Dispatcher(Overtaken(ledger.store), executor, claims, 1, lambda: NOW).dispatch()
    assert executor.calls == []
