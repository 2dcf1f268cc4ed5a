"""What is promised about slots, and about the jobs of workers that are lost."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from sqlalchemy import text

from service.jobs.ledger import ClaimVoid
from service.jobs.records import Claim, JobError, Progress, Slot
from service.jobs.sql import SqlLedger
from service.jobs.transitions import CRASH_LIMIT
from tests.service.jobs.samples import (
    METRICS,
    Clock,
    activation,
    new_version,
    queued,
    report,
    running,
    slot,
    told,
)


class TestTakeSlot:
    def test_gives_a_new_one(self, ledger: SqlLedger, clock: Clock) -> None:
        first = ledger.take_slot("one", "host a", 1, [])
        assert first == Slot("worker-1", "one", "host a", 1, clock.now, released=False)
        second = ledger.take_slot("two", "host b", 2, [])
        assert second.name == "worker-2"
        assert ledger.slots() == [first, second]

    def test_gives_one_that_was_released(self, ledger: SqlLedger, clock: Clock) -> None:
        slot(ledger, "one")
        slot(ledger, "two")
        ledger.release_slot("one")
        assert ledger.slots()[0].released
        clock.advance(5)
        assert slot(ledger, "three") == replace(
            slot(ledger, "three"), name="worker-1", seen_at=clock.now, released=False
        )
        assert [s.token for s in ledger.slots()] == ["three", "two"]

    def test_gives_that_of_a_dead_process_before_one_that_was_released(
        self, ledger: SqlLedger
    ) -> None:
        for token in ("one", "two", "three"):
            slot(ledger, token)
        ledger.release_slot("one")
        assert slot(ledger, "four", free=("three", "stranger")).name == "worker-3"
        assert slot(ledger, "five", free=("three",)).name == "worker-1"
        assert slot(ledger, "six", free=("three",)).name == "worker-4"

    def test_gives_a_process_the_one_it_has(self, ledger: SqlLedger) -> None:
        slot(ledger, "one")
        assert slot(ledger, "two").name == "worker-2"
        ledger.release_slot("one")
        assert slot(ledger, "two").name == "worker-2"
        assert len(ledger.slots()) == 2

    def test_order_is_by_number(self, ledger: SqlLedger) -> None:
        names = [slot(ledger, f"{number}").name for number in range(11)]
        assert names == [f"worker-{number}" for number in range(1, 12)]
        assert [s.name for s in ledger.slots()] == names


class TestBeat:
    def test_says_that_the_process_lives(
        self, ledger: SqlLedger, other: SqlLedger, clock: Clock
    ) -> None:
        slot(ledger)
        now = clock.advance(7)
        assert ledger.beat("token", [])
        assert other.slots()[0].seen_at == now

    def test_by_a_process_that_has_lost_its_slot(self, ledger: SqlLedger) -> None:
        assert not ledger.beat("token", [])
        slot(ledger)
        slot(ledger, "new", free=("token",))
        assert not ledger.beat("token", [])
        assert ledger.beat("new", [])
        ledger.release_slot("new")
        assert not ledger.beat("new", [])

    def test_keeps_what_the_process_works_on(self, ledger: SqlLedger) -> None:
        claims = [running(ledger), running(ledger)]
        jobs = [ledger.get(claim.job) for claim in claims]
        assert ledger.beat("token", [*claims, Claim(queued(ledger).id, 1, "token")])
        assert [ledger.get(claim.job) for claim in claims] == jobs

    def test_takes_what_it_does_not_work_on(self, ledger: SqlLedger) -> None:
        kept, lost = running(ledger), running(ledger)
        assert ledger.beat("token", [kept, replace(lost, run=7), replace(lost, token="other")])
        assert ledger.get(kept.job).status == "running"
        job = ledger.get(lost.job)
        assert (job.status, job.run, job.crashes, job.worker) == ("queued", 2, 1, None)
        with pytest.raises(ClaimVoid):
            ledger.say(lost, "still here")

    def test_leaves_the_jobs_of_others(self, ledger: SqlLedger) -> None:
        slot(ledger)
        claim = running(ledger, "other")
        ledger.beat("token", [])
        assert ledger.get(claim.job).status == "running"


class TestRelease:
    def test_queues_the_jobs_without_a_crash(self, ledger: SqlLedger) -> None:
        claim = running(ledger)
        ledger.finish_epoch(claim, report(1), b"state")
        waiting = queued(ledger)
        ledger.release_slot("token")
        job = ledger.get(claim.job)
        assert (job.status, job.run, job.crashes, job.worker) == ("queued", 2, 0, None)
        assert job.position == 1, "it keeps its place"
        assert ledger.queued() == [(job.id, 2), (waiting.id, 1)]
        assert ledger.checkpoint(job.id) == b"state"
        assert told(ledger, job.id)[-1] == (
            "worker-1 was stopped; the job is queued again and goes on after epoch 1."
        )
        with pytest.raises(ClaimVoid):
            ledger.say(claim, "still here")

    def test_of_a_slot_that_is_lost(self, ledger: SqlLedger) -> None:
        ledger.release_slot("nobody")
        claim = running(ledger)
        slot(ledger, "new", free=("token",))
        ledger.release_slot("token")
        assert not ledger.slots()[0].released
        assert ledger.get(claim.job).status == "running"


class TestRecover:
    def test_a_worker_not_heard_of(self, ledger: SqlLedger, clock: Clock) -> None:
        claim = running(ledger)
        ledger.finish_epoch(claim, report(1), b"state")
        progress = Progress(2, 50, 1, 2, None, None)
        ledger.progress(claim, progress)
        waiting = queued(ledger)
        assert ledger.recover(clock.now) == []
        before = clock.advance(20)
        assert ledger.recover(before) == [claim.job]
        job = ledger.get(claim.job)
        assert (job.status, job.run, job.crashes, job.worker) == ("queued", 2, 1, None)
        assert (job.position, job.progress) == (1, progress)
        assert ledger.checkpoint(job.id) == b"state"
        assert ledger.queued() == [(job.id, 2), (waiting.id, 1)]
        last = ledger.events(job.id)[0][-1]
        assert last.level == "warning"
        assert last.message == (
            "worker-1 was lost after epoch 1, loss 1 of the 3 that end it; the job is queued again "
            "and goes on after epoch 1."
        )
        assert last.data == {"status": "queued", "run": 2, "crashes": 1}

    def test_once(self, ledger: SqlLedger, other: SqlLedger, clock: Clock) -> None:
        claim = running(ledger)
        before = clock.advance(20)
        assert ledger.recover(before) == [claim.job]
        assert other.recover(before) == []
        assert ledger.get(claim.job).crashes == 1

    def test_leaves_a_worker_that_beats(self, ledger: SqlLedger, clock: Clock) -> None:
        claim = running(ledger)
        before = clock.advance(20)
        ledger.beat("token", [claim])
        assert ledger.recover(before) == []

    def test_by_the_worker_itself_when_it_wakes(self, ledger: SqlLedger, clock: Clock) -> None:
        """It goes on as a worker, and not with the job."""
        claim = running(ledger)
        ledger.recover(clock.advance(20))
        assert ledger.beat("token", [claim])
        assert ledger.get(claim.job).status == "queued"
        job = ledger.start(replace(claim, run=2), "worker-1")
        assert job.status == "running"

    def test_a_slot_that_another_took(self, ledger: SqlLedger, clock: Clock) -> None:
        """It has as long to go on with the jobs as a worker has to be heard of."""
        claim = running(ledger)
        clock.advance(100)
        slot(ledger, "new", free=("token",))
        assert ledger.recover(clock.now) == []
        before = clock.advance(1)
        ledger.beat("new", [])
        assert ledger.recover(before) == [claim.job]

    def test_a_slot_that_another_took_and_gave_back(self, ledger: SqlLedger, clock: Clock) -> None:
        claim = running(ledger)
        slot(ledger, "new", free=("token",))
        ledger.release_slot("new")
        assert ledger.recover(clock.now) == [claim.job]

    @pytest.mark.parametrize(
        "damage", ["DELETE FROM workers", "UPDATE workers SET seen_at = 'long ago'"]
    )
    def test_a_slot_that_cannot_be_read(self, ledger: SqlLedger, clock: Clock, damage: str) -> None:
        claim = running(ledger)
        with ledger.store.writing() as session:
            session.execute(text(damage))
        assert ledger.recover(clock.now) == [claim.job]


class TestSuccessor:
    """A process that took the slot of a dead one, whose workflows it goes on with."""

    def test_goes_on_with_the_same_run(self, ledger: SqlLedger, clock: Clock) -> None:
        claim = running(ledger)
        started = clock.now
        ledger.finish_epoch(claim, report(1), b"state")
        clock.advance(9)
        slot(ledger, "new", free=("token",))
        job = ledger.start(replace(claim, token="new"), "worker-1")
        assert (job.status, job.run, job.crashes, job.worker) == ("running", 1, 1, "worker-1")
        assert (job.started_at, job.epochs) == (started, (report(1),))
        assert told(ledger, job.id)[-1] == (
            "worker-1 was lost after epoch 1, loss 1 of the 3 that end it, and started again; the "
            "job goes on after epoch 1."
        )
        with pytest.raises(ClaimVoid):
            ledger.say(claim, "still here")
        ledger.say(replace(claim, token="new"), "here")

    def test_counts_each_loss_once(self, ledger: SqlLedger, clock: Clock) -> None:
        claim = running(ledger)
        slot(ledger, "new", free=("token",))
        successor = replace(claim, token="new")
        ledger.start(successor, "worker-1")
        assert ledger.start(successor, "worker-1").crashes == 1
        assert ledger.recover(clock.now) == []


def lose_by_recovery(ledger: SqlLedger, clock: Clock, claim: Claim) -> Claim:
    ledger.recover(clock.advance(1))
    return replace(claim, run=claim.run + 1)


def lose_by_beat(ledger: SqlLedger, clock: Clock, claim: Claim) -> Claim:
    ledger.beat(claim.token, [])
    return replace(claim, run=claim.run + 1)


def lose_by_succession(ledger: SqlLedger, clock: Clock, claim: Claim) -> Claim:
    slot(ledger, claim.token + "x", free=(claim.token,))
    return replace(claim, token=claim.token + "x")


@pytest.mark.parametrize("lose", [lose_by_recovery, lose_by_beat, lose_by_succession])
class TestCrashes:
    def crash(
        self, ledger: SqlLedger, clock: Clock, lose: Callable[..., Claim], claim: Claim
    ) -> Claim:
        """Lose the worker, and have the job taken up again if that may be."""
        claim = lose(ledger, clock, claim)
        ledger.start(claim, "worker-1")
        return claim

    def test_the_third_fails_the_job(
        self, ledger: SqlLedger, clock: Clock, lose: Callable[..., Claim]
    ) -> None:
        claim = running(ledger)
        for crashes in range(1, CRASH_LIMIT):
            claim = self.crash(ledger, clock, lose, claim)
            assert ledger.get(claim.job).crashes == crashes
        ledger.finish_epoch(claim, report(1), b"state")
        with pytest.raises(ClaimVoid):
            self.crash(ledger, clock, lose, claim)
        job = ledger.get(claim.job)
        assert (job.status, job.crashes, job.worker) == ("failed", 3, None)
        assert job.error is not None
        assert (job.error.code, job.error.param) == ("worker_crashed", "batch_size")
        assert "the last one after epoch 1" in job.error.message
        assert "lower batch_size or max_length" in job.error.message
        last = ledger.events(job.id)[0][-1]
        assert (last.level, last.data["error"]["code"]) == ("error", "worker_crashed")

    def test_are_forgotten_when_it_is_resumed(
        self, ledger: SqlLedger, clock: Clock, lose: Callable[..., Claim]
    ) -> None:
        claim = running(ledger)
        for _ in range(1, CRASH_LIMIT):
            claim = self.crash(ledger, clock, lose, claim)
        ledger.fail(claim, JobError("training_failed", "No."))
        job = ledger.resume(claim.job)
        assert job.crashes == 0
        claim = replace(claim, run=job.run)
        ledger.start(claim, "worker-1")
        self.crash(ledger, clock, lose, claim)


VOID: dict[str, Callable[[SqlLedger, Clock, Claim], object]] = {
    "cancelled": lambda ledger, _clock, claim: ledger.cancel(claim.job),
    "failed": lambda ledger, _clock, claim: ledger.fail(claim, JobError("code", "No.")),
    "succeeded": lambda ledger, _clock, claim: ledger.succeed(
        claim, new_version(content=b"first"), activation(), METRICS
    ),
    "released": lambda ledger, _clock, claim: ledger.release_slot(claim.token),
    "recovered": lambda ledger, clock, _claim: ledger.recover(clock.advance(1)),
    "not named": lambda ledger, _clock, claim: ledger.beat(claim.token, []),
    "resumed": lambda ledger, _clock, claim: (
        ledger.cancel(claim.job),
        ledger.resume(claim.job),
    ),
    "taken up again": lambda ledger, clock, claim: (
        ledger.recover(clock.advance(1)),
        ledger.start(replace(claim, run=2), "worker-1"),
    ),
    "taken up by another": lambda ledger, clock, claim: (
        ledger.recover(clock.advance(1)),
        ledger.start(replace(claim, run=2, token="other"), slot(ledger, "other").name),
    ),
    "gone on with": lambda ledger, _clock, claim: (
        slot(ledger, "new", free=("token",)),
        ledger.start(replace(claim, token="new"), "worker-1"),
    ),
    "deleted": lambda ledger, _clock, claim: ledger.delete(ledger.cancel(claim.job).id),
}

WRITES: dict[str, Callable[[SqlLedger, Claim], object]] = {
    "start": lambda ledger, claim: ledger.start(claim, "worker-1"),
    "progress": lambda ledger, claim: ledger.progress(claim, Progress(1, 2, 3, 4, None, None)),
    "say": lambda ledger, claim: ledger.say(claim, "still here"),
    "finish_epoch": lambda ledger, claim: ledger.finish_epoch(claim, report(7), b"stale"),
    "succeed": lambda ledger, claim: ledger.succeed(
        claim, new_version(content=b"stale"), activation(ledger.served("spam")), METRICS
    ),
    "fail": lambda ledger, claim: ledger.fail(claim, JobError("code", "Stale.")),
}


class TestWhoIsTooLate:
    """A worker that was paused, and wakes after its job was taken from it, changes nothing."""

    @pytest.fixture
    def claim(self, ledger: SqlLedger) -> Claim:
        claim = running(ledger)
        ledger.finish_epoch(claim, report(1), b"state")
        return claim

    @pytest.mark.parametrize("why", VOID)
    def test_changes_nothing(
        self, ledger: SqlLedger, other: SqlLedger, clock: Clock, claim: Claim, why: str
    ) -> None:
        VOID[why](ledger, clock, claim)
        before = everything(ledger)
        for write in WRITES.values():
            with pytest.raises(ClaimVoid):
                write(other, claim)
        assert everything(ledger) == before


def everything(ledger: SqlLedger) -> list[object]:
    """All that is in the database."""
    with ledger.store.reading() as session:
        names = session.scalars(text("SELECT name FROM sqlite_master WHERE type = 'table'")).all()
        return [
            (name, row) for name in names for row in session.execute(text(f"SELECT * FROM {name}"))
        ]
