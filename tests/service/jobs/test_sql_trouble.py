"""A database that is locked, full, closed or shared leaves nothing half done."""

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import event

from service.jobs.records import Claim, JobError, Progress
from service.jobs.spec import JobSpec
from service.jobs.sql import SqlLedger, open_ledger
from service.store.errors import StoreUnavailable
from service.store.open import open_store
from tests.service.jobs.samples import (
    FILES,
    METRICS,
    Clock,
    activation,
    data_file,
    new_version,
    queued,
    report,
    running,
    slot,
    validating,
)
from tests.service.jobs.test_sql_slots import everything

ROOT = Path(__file__).parents[3]

LARGE = bytes(2_000_000)


@pytest.fixture
def claim(ledger: SqlLedger) -> Claim:
    return running(ledger)


WRITES: dict[str, Callable[[SqlLedger, Claim], object]] = {
    "open": lambda ledger, _claim: ledger.open(JobSpec(task="other")),
    "cancel": lambda ledger, claim: ledger.cancel(claim.job),
    "progress": lambda ledger, claim: ledger.progress(claim, Progress(1, 2, 3, 4, None, None)),
    "say": lambda ledger, claim: ledger.say(claim, "message"),
    "finish_epoch": lambda ledger, claim: ledger.finish_epoch(claim, report(1), b"state"),
    "succeed": lambda ledger, claim: ledger.succeed(claim, new_version(), activation(), METRICS),
    "fail": lambda ledger, claim: ledger.fail(claim, JobError("code", "No.")),
    "take_slot": lambda ledger, _claim: slot(ledger, "other"),
    "beat": lambda ledger, _claim: ledger.beat("token", []),
    "release_slot": lambda ledger, _claim: ledger.release_slot("token"),
}


@pytest.mark.parametrize("name", WRITES)
def test_locked(ledger: SqlLedger, database: Path, claim: Claim, name: str) -> None:
    before = everything(ledger)
    ledger.store.engine.dispose()
    with quickly(ledger), closing(sqlite3.connect(database)) as another:
        another.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="locked"):
            WRITES[name](ledger, claim)
        assert everything(ledger) == before
    WRITES[name](ledger, claim)
    assert everything(ledger) != before


@contextmanager
def quickly(ledger: SqlLedger) -> Iterator[None]:
    """Give up on a locked database at once."""

    def impatient(connection: sqlite3.Connection, *_rest: object) -> None:
        connection.execute("PRAGMA busy_timeout = 1")

    event.listen(ledger.store.engine, "checkout", impatient)
    yield
    event.remove(ledger.store.engine, "checkout", impatient)
    ledger.store.engine.dispose()


@contextmanager
def full(ledger: SqlLedger) -> Iterator[None]:
    """A disk on which nothing large has room."""

    def limit(connection: sqlite3.Connection, *_rest: object) -> None:
        connection.execute("PRAGMA max_page_count = 100")

    event.listen(ledger.store.engine, "checkout", limit)
    yield
    event.remove(ledger.store.engine, "checkout", limit)
    ledger.store.engine.dispose()


class TestFull:
    """The last statements of a transaction fail, so the first ones must be undone."""

    @pytest.fixture
    def ledger(self, tmp_path: Path) -> Iterator[SqlLedger]:
        with closing(open_store(tmp_path)) as store:
            ledger = open_ledger(store)
            assert isinstance(ledger, SqlLedger)
            yield ledger

    def test_accept(self, ledger: SqlLedger) -> None:
        job = validating(ledger)
        with full(ledger), pytest.raises(StoreUnavailable, match="full"):
            ledger.accept(job.id, {"train": data_file(LARGE)}, ["A warning."])
        assert ledger.get(job.id) == job
        assert len(ledger.events(job.id)[0]) == 1
        assert ledger.data(job.id, "train") is None
        ledger.accept(job.id, FILES)

    def test_finish_epoch(self, ledger: SqlLedger, claim: Claim) -> None:
        ledger.finish_epoch(claim, report(1), b"state")
        before = everything(ledger)
        with full(ledger), pytest.raises(StoreUnavailable, match="full"):
            ledger.finish_epoch(claim, report(2), LARGE)
        assert everything(ledger) == before

    def test_succeed(self, ledger: SqlLedger, claim: Claim) -> None:
        before = everything(ledger)
        with full(ledger), pytest.raises(StoreUnavailable, match="full"):
            ledger.succeed(claim, new_version(content=LARGE), activation(), METRICS)
        assert everything(ledger) == before
        assert ledger.succeed(claim, new_version(), activation(), METRICS).version == 1

    def test_room_can_be_made(self, ledger: SqlLedger) -> None:
        job = queued(ledger)
        with full(ledger):
            ledger.cancel(job.id)
            ledger.delete(job.id)
        assert ledger.page() == ([], False)


def test_closed_with_the_store(tmp_path: Path) -> None:
    with closing(open_store(tmp_path)) as store:
        ledger = open_ledger(store)
        job, _ = ledger.open(JobSpec(task="spam"))
    with pytest.raises(StoreUnavailable, match="closed"):
        ledger.get(job.id)
    with closing(open_store(tmp_path)) as store:
        assert open_ledger(store).get(job.id) == job


def test_a_store_that_has_no_database() -> None:
    with pytest.raises(TypeError, match="open_store"):
        open_ledger(object())  # type: ignore[arg-type]


class TestProcesses:
    """Two processes that do the same at the same time."""

    @pytest.fixture
    def contenders(self, tmp_path: Path) -> Iterator[list[subprocess.Popen[str]]]:
        command = [sys.executable, "-m", "tests.service.jobs.contender", str(tmp_path)]
        with ExitStack() as stack:
            processes = [
                stack.enter_context(
                    subprocess.Popen(
                        [*command, name],
                        cwd=ROOT,
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        text=True,
                    )
                )
                for name in ("one", "two")
            ]
            for process in processes:
                stack.callback(process.kill)
            yield processes

    def all_of(self, contenders: list[subprocess.Popen[str]], phase: str) -> list[str]:
        """Have all go through a phase at once; what they got in sum."""
        for process in contenders:
            assert process.stdin is not None
            process.stdin.write(f"{phase}\n")
            process.stdin.flush()
        got = []
        for process in contenders:
            assert process.stdout is not None
            got += process.stdout.readline().split()
        return got

    def test_never_get_the_same(
        self, tmp_path: Path, contenders: list[subprocess.Popen[str]]
    ) -> None:
        with closing(open_store(tmp_path)) as store:
            ledger = open_ledger(store)
            slot(ledger, "dead")
            slot(ledger, "gone")
            ledger.release_slot("gone")
            jobs = [queued(ledger).id for _ in range(6)]

            slots = self.all_of(contenders, "slots")
            assert sorted(slots) == sorted(s.name for s in ledger.slots())
            assert len(slots) == 10
            assert sorted(self.all_of(contenders, "jobs")) == sorted(jobs)
            assert ledger.counts()["running"] == 6
            assert sorted(self.all_of(contenders, "losses")) == sorted(jobs)
            for job in ledger.page()[0]:
                assert (job.status, job.run, job.crashes) == ("queued", 2, 1)
                numbers = [event.number for event in ledger.events(job.id)[0]]
                assert numbers == [1, 2, 3, 4]


def test_a_clock_that_goes_back(ledger: SqlLedger, clock: Clock) -> None:
    """Order is not a matter of time."""
    first = queued(ledger)
    clock.advance(-3600)
    second = queued(ledger)
    assert ledger.queued() == [(first.id, 1), (second.id, 1)]
    assert [job.id for job in ledger.page()[0]] == [second.id, first.id]
