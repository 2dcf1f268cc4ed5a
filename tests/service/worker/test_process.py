"""What a worker process does, as far as a test can do it in its own process."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from dbos import DBOS
from structlog.testing import capture_logs

from service.jobs.sql import SqlLedger
from service.settings import load_settings
from service.store.sqlite import SqliteStore
from service.worker import process
from service.worker.ending import ANEW, FAILURE, SUCCESS, Ending, leave
from service.worker.process import run, work


@pytest.fixture
def destroyed() -> Iterator[None]:
    """The process would be gone."""
    yield
    DBOS.destroy(destroy_registry=True)


class Left(BaseException):
    """The process was left, with this status."""


@pytest.mark.parametrize("status", [SUCCESS, FAILURE, ANEW])
def test_it_works_until_the_end_and_gives_its_slot_back(
    store: SqliteStore, ledger: SqlLedger, tmp_path: Path, destroyed: None, status: int
) -> None:
    ending = Ending()
    ending.ask(status)
    with capture_logs() as logs:
        assert work(load_settings(data_dir=tmp_path), ending) == status
    (slot,) = ledger.slots()
    assert (slot.name, slot.pid, slot.released) == ("worker-1", os.getpid(), True)
    assert [log["event"] for log in logs] == ["worker_ready", "worker_stopped"]


def test_a_database_of_workflows_that_cannot_be_used_is_told_and_costs_no_slot(
    store: SqliteStore, ledger: SqlLedger, tmp_path: Path, destroyed: None
) -> None:
    settings = load_settings(data_dir=tmp_path, train_database="sqlite:////nowhere/at/all.sqlite")
    with capture_logs() as logs:
        assert work(settings, Ending()) == FAILURE
    (failed,) = [log for log in logs if log["event"] == "start_failed"]
    assert failed["code"] == "store_unavailable"
    assert "CAPSULE_TRAIN_DATABASE" in failed["reason"]
    assert [slot.released for slot in ledger.slots()] == [True]


def test_a_folder_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with capture_logs() as logs:
        assert work(load_settings(data_dir=tmp_path / "file"), Ending()) == FAILURE
    assert [(log["event"], log["code"]) for log in logs] == [("start_failed", "store_unavailable")]


@pytest.mark.parametrize("supervised", [True, False])
def test_the_process_is_set_up_before_it_works(
    monkeypatch: pytest.MonkeyPatch, supervised: bool
) -> None:
    done: list[object] = []
    for name in ("end_on_signals", "end_with_parent", "quieten_threads"):
        monkeypatch.setattr(process, name, lambda *_, name=name: done.append(name))
    monkeypatch.setattr(process, "step_back", lambda niceness: done.append(niceness))
    monkeypatch.setattr(process, "limit_memory", lambda most: done.append(most))
    monkeypatch.setattr(process, "configure_logging", lambda *given: done.append(given))
    monkeypatch.setattr(process, "work", lambda settings, ending: 7)

    def left(status: int) -> None:
        done.append(status)
        raise Left

    monkeypatch.setattr(process, "leave", left)
    monkeypatch.setenv("CAPSULE_TRAIN_NIEC", "3")
    settings = load_settings(train_nice=3, train_memory="2GiB")
    with capture_logs() as logs, pytest.raises(Left):
        run(settings, supervised=supervised)
    assert done == [
        *("end_on_signals", 3, 2 * 1024**3, "quieten_threads", ("INFO", "json")),
        *["end_with_parent"] * supervised,
        7,
    ]
    # The server has said so already.
    assert [log["variable"] for log in logs] == ["CAPSULE_TRAIN_NIEC"] * (not supervised)


def test_it_is_left_at_once_or_begun_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[object] = []

    def gone(*given: object) -> None:
        done.append(given)
        raise Left

    monkeypatch.setattr(os, "_exit", gone)
    monkeypatch.setattr(os, "execv", gone)
    for status in (FAILURE, ANEW):
        with pytest.raises(Left):
            leave(status)
    assert done == [
        (FAILURE,),
        (sys.executable, [*sys.orig_argv, "--train-nice", "0"]),
    ]
