import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import make_url
from structlog.testing import capture_logs

from service.jobs.records import Claim, Job
from service.jobs.sql import SqlLedger
from service.settings import Settings, load_settings
from service.store.errors import StoreUnavailable
from service.store.sqlite import SqliteStore
from service.worker.ending import ANEW, FAILURE, SUCCESS, Ending
from service.worker.identity import this_process
from service.worker.trainer import trainer_for
from service.worker.worker import Worker, database, tolerant
from service.worker.workflows import Step
from tests.service.worker.conftest import Submit
from tests.service.worker.samples import told

PATIENCE_S = 20.0


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.02)


class Sluggish:
    """Trains until it is told to go on, or until the job is no longer its own."""

    def __init__(self, ledger: SqlLedger) -> None:
        self.ledger = ledger
        self.go_on = threading.Event()
        self.made = 0

    def make(self) -> "Sluggish":
        self.made += 1
        return self

    def train(self, claim: Claim, job: Job, step: Step) -> None:
        while not self.go_on.wait(0.02):
            self.ledger.say(claim, "Still training.")
        self.ledger.cancel(claim.job)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(data_dir=tmp_path, train_concurrency=2)


@pytest.fixture
def trainer(ledger: SqlLedger) -> Sluggish:
    return Sluggish(ledger)


@pytest.fixture
def start(
    settings: Settings,
    ledger: SqlLedger,
    store: SqliteStore,
    trainer: Sluggish,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[[], Worker]]:
    """Starts workers, one after the other, whose hearts beat when a test has them do so."""
    monkeypatch.setattr("service.worker.worker.BEAT_S", 3600.0)
    running: list[Worker] = []

    def close() -> None:
        worker = running.pop()
        worker.ending.begun.set()
        worker.stop()
        assert worker.workflows is not None
        worker.workflows.close()

    def call() -> Worker:
        if running:
            close()
        worker = Worker(settings, ledger, store, this_process(), Ending(), trainer.make)
        worker.start()
        running.append(worker)
        return worker

    yield call
    while running:
        close()


def test_jobs_are_taken_up_side_by_side_and_go_back_when_it_stops(
    ledger: SqlLedger, submit: Submit, start: Callable[[], Worker], trainer: Sluggish
) -> None:
    worker = start()
    jobs = [submit() for _ in range(3)]
    wait_for(lambda: ledger.counts()["running"] == 2)
    first, second, third = (ledger.get(job.id) for job in jobs)
    assert (first.status, second.status, third.status) == ("running", "running", "queued")
    worker.beat()
    assert ledger.get(first.id).status == "running"

    # As the process does: nothing is handed over any more, then the slot is given back.
    worker.ending.ask(SUCCESS)
    worker.ending.wait()
    worker.stop()
    wait_for(lambda: not worker.claims.runs())
    stopped = ledger.get(first.id)
    assert (stopped.status, stopped.run, stopped.crashes) == ("queued", 2, 0)
    assert "was stopped; the job is queued again" in told(ledger, first.id)[-1][1]

    # The next process has the slot, and its jobs in the order they had.
    worker = start()
    assert [slot.name for slot in ledger.slots()] == ["worker-1"]
    wait_for(lambda: worker.claims.runs() == {(first.id, 2), (second.id, 2)})
    trainer.go_on.set()
    wait_for(lambda: ledger.counts()["cancelled"] == 3)
    assert ledger.get(third.id).run == 1
    assert trainer.made == 2, "once for each worker"


def test_one_that_lost_its_slot_ends_as_a_failure(
    ledger: SqlLedger, start: Callable[[], Worker]
) -> None:
    worker = start()
    ledger.take_slot("other", "host", 1, [worker.identity.token])
    with capture_logs() as logs:
        worker.beat()
    assert worker.ending.wait() == FAILURE
    assert [log["event"] for log in logs] == ["slot_lost"]


@pytest.mark.parametrize(("limit", "anew"), [("1GiB", True), (None, False)])
def test_where_memory_is_limited_it_begins_anew_without_what_was_left_behind(
    ledger: SqlLedger, store: SqliteStore, limit: str | None, anew: bool
) -> None:
    ending = Ending()
    settings = load_settings(train_memory=limit)
    with capture_logs() as logs:
        Worker(settings, ledger, store, this_process(), ending).begin_anew()
    ending.ask(SUCCESS)
    assert ending.wait() == (ANEW if anew else SUCCESS)
    assert [log["event"] for log in logs] == ["worker_begins_anew"] * anew


def test_what_was_over_long_ago_is_forgotten(start: Callable[[], Worker]) -> None:
    start().tidy()


def test_a_slot_that_cannot_be_given_back_is_left_to_grow_stale(
    settings: Settings, ledger: SqlLedger, store: SqliteStore
) -> None:
    class Gone(SqlLedger):
        def release_slot(self, token: str) -> None:
            raise StoreUnavailable("locked")

    ending = Ending()
    with capture_logs() as logs:
        Worker(settings, Gone(store), store, this_process(), ending).stop()
    assert [log["event"] for log in logs] == ["slot_not_released"]
    ending.ask(SUCCESS)
    assert ending.wait() == SUCCESS


def test_a_database_that_is_not_there_for_a_while_ends_nothing() -> None:
    def act() -> None:
        raise StoreUnavailable("locked")

    with capture_logs() as logs:
        tolerant(act)()
    assert [log["event"] for log in logs] == ["database_unavailable"]


def test_the_workflows_are_beside_the_capsules_unless_told_otherwise(tmp_path: Path) -> None:
    settings = load_settings(data_dir=tmp_path / "a b%")
    assert make_url(database(settings)).database == str(tmp_path / "a b%" / "workflows.sqlite")
    other = load_settings(train_database="postgresql://host/db")
    assert database(other) == "postgresql://host/db"


def test_the_trainer_loads_the_backbone_of_the_settings_once(
    ledger: SqlLedger, store: SqliteStore, backbone_folder: Path
) -> None:
    settings = load_settings(backbone=str(backbone_folder), dtype="bfloat16", train_threads=1)
    trainer = trainer_for(settings, ledger, store)
    loaded = trainer.backbone()
    assert str(loaded.backbone.dtype) == "torch.float32"
    assert trainer.backbone() is loaded
