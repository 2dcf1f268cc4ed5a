from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from capsules.errors import OptionError, TrainingError, TrainingFault
from service.errors import NotFound
from service.jobs.ledger import ClaimVoid
from service.jobs.records import Claim, Job, JobError
from service.jobs.sql import SqlLedger
from service.store.errors import StoreUnavailable
from service.worker.claims import Claims
from service.worker.runner import LONGEST_WAIT_S, Runner, Trains
from service.worker.workflows import Step
from tests.service.worker.conftest import TOKEN, Submit
from tests.service.worker.samples import at_once


class Trainer:
    """Does to a job what a test wants."""

    def __init__(self, act: Callable[[Claim], None]) -> None:
        self.act = act
        self.jobs: list[Job] = []

    def train(self, claim: Claim, job: Job, step: Step) -> None:
        self.jobs.append(job)
        self.act(claim)


def nothing(claim: Claim) -> None:
    return


def raising(error: Exception) -> Callable[[Claim], None]:
    def act(claim: Claim) -> None:
        raise error

    return act


def runner(ledger: SqlLedger, trainer: Trains, waits: list[float] | None = None) -> Runner:
    ledger.take_slot(TOKEN, "host", 1, ())
    kept = [] if waits is None else waits
    return Runner(ledger, Claims(TOKEN), "worker-1", lambda: trainer, kept.append)


def test_a_job_is_taken_up_and_named_in_heartbeats(ledger: SqlLedger, submit: Submit) -> None:
    named: list[frozenset[tuple[str, int]]] = []
    trainer = Trainer(lambda claim: named.append(works.claims.runs()))
    works = runner(ledger, trainer)
    job = submit()
    works.run(job.id, 1, at_once)
    assert named == [frozenset({(job.id, 1)})]
    assert works.claims.runs() == frozenset()
    (started,) = trainer.jobs
    assert (started.status, started.worker) == ("running", "worker-1")


@pytest.mark.parametrize("spoil", [SqlLedger.cancel, SqlLedger.delete, None])
def test_a_run_that_is_not_to_be_done_is_left(ledger: SqlLedger, submit: Submit, spoil) -> None:
    trainer = Trainer(nothing)
    works = runner(ledger, trainer)
    job = submit()
    if spoil is not None:
        ledger.cancel(job.id)
    if spoil is SqlLedger.delete:
        ledger.delete(job.id)
    works.run(job.id, 1 if spoil is not None else 2, at_once)
    assert trainer.jobs == []


def test_an_error_fails_the_job(ledger: SqlLedger, submit: Submit) -> None:
    works = runner(ledger, Trainer(raising(OptionError("Too long.", field="max_length"))))
    job = submit()
    works.run(job.id, 1, at_once)
    failed = ledger.get(job.id)
    assert failed.status == "failed"
    assert failed.error == JobError("invalid_option", "Too long.", "max_length")


def test_what_cannot_even_be_loaded_fails_the_job(ledger: SqlLedger, submit: Submit) -> None:
    ledger.take_slot(TOKEN, "host", 1, ())

    def broken() -> Trains:
        raise MemoryError

    job = submit()
    Runner(ledger, Claims(TOKEN), "worker-1", broken, lambda _: None).run(job.id, 1, at_once)
    error = ledger.get(job.id).error
    assert error is not None
    assert error.code == "out_of_memory"


@pytest.mark.parametrize(
    "error", [ClaimVoid("cancelled"), NotFound("deleted", code="job_not_found", field="id")]
)
def test_a_job_that_is_no_longer_its_own_is_dropped(
    ledger: SqlLedger, submit: Submit, error: Exception
) -> None:
    works = runner(ledger, Trainer(raising(error)))
    job = submit()
    with capture_logs() as logs:
        works.run(job.id, 1, at_once)
    assert ledger.get(job.id).status == "running"
    # A worker of another test may still be on its way out, and tell of it.
    told = [log["event"] for log in logs if log["event"].startswith("job_")]
    assert told == ["job_started", "job_dropped"]


def test_a_job_that_was_cancelled_as_it_failed_stays_cancelled(
    ledger: SqlLedger, submit: Submit
) -> None:
    def cancelled(claim: Claim) -> None:
        ledger.cancel(claim.job)
        raise ValueError

    job = submit()
    runner(ledger, Trainer(cancelled)).run(job.id, 1, at_once)
    assert ledger.get(job.id).status == "cancelled"


@pytest.mark.parametrize(
    ("code", "calls"), [(TrainingFault.OUT_OF_MEMORY, 1), (TrainingFault.DIVERGED, 0)]
)
def test_a_lack_of_memory_is_told_once_the_job_has_failed(
    ledger: SqlLedger, submit: Submit, code: TrainingFault, calls: int
) -> None:
    job = submit()
    statuses: list[str] = []
    works = runner(ledger, Trainer(raising(TrainingError("Too large.", code=code))))
    works.exhausted = lambda: statuses.append(ledger.get(job.id).status)
    works.run(job.id, 1, at_once)
    assert statuses == ["failed"] * calls


class Locked(SqlLedger):
    """A ledger that cannot be reached so many times."""

    failures = 9

    def reached(self) -> None:
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("locked")

    def start(self, claim: Claim, worker: str) -> Job:
        self.reached()
        return super().start(claim, worker)

    def fail(self, claim: Claim, error: JobError) -> None:
        self.reached()
        super().fail(claim, error)


def test_a_job_is_started_once_the_ledger_can_be_reached(ledger: SqlLedger, submit: Submit) -> None:
    waits: list[float] = []
    trainer = Trainer(nothing)
    job = submit()
    runner(Locked(ledger.store), trainer, waits).run(job.id, 1, at_once)
    assert len(trainer.jobs) == 1
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, *[LONGEST_WAIT_S] * 4]


def test_a_failure_is_told_once_the_ledger_can_be_reached(
    ledger: SqlLedger, submit: Submit
) -> None:
    waits: list[float] = []
    locked = Locked(ledger.store)
    locked.failures = 0

    def act(claim: Claim) -> None:
        locked.failures = 2
        raise StoreUnavailable("disk full")

    job = submit()
    runner(locked, Trainer(act), waits).run(job.id, 1, at_once)
    error = ledger.get(job.id).error
    assert error is not None
    assert error.code == "store_unavailable"
    assert waits == [0.5, 1.0]
