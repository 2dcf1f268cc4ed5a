import logging
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from dbos import error as faults

from service.store.errors import StoreUnavailable
from service.worker import workflows as room
from service.worker.dispatch import Handed, Run
from service.worker.workflows import Step, Workflows, WorkflowsUnavailable, handed, shown

PATIENCE_S = 20.0
A: Run = ("ftjob-a", 1)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.02)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'workflows.sqlite'}"


Work = Callable[[str, int, Step], None]


@pytest.fixture
def launched(url: str) -> Iterator[Callable[[Work], Workflows]]:
    """Launches workflows, one after the other in the place of the one before."""
    running: list[Workflows] = []

    def call(work: Work) -> Workflows:
        while running:
            running.pop().close()
        made = Workflows(url, "worker-1", 1, work)
        made.launch()
        running.append(made)
        return made

    yield call
    while running:
        running.pop().close()


def test_a_run_is_done_step_by_step_once(
    launched: Callable[[Work], Workflows], caplog: pytest.LogCaptureFixture, monkeypatch
) -> None:
    monkeypatch.setattr(room, "FIRST_WAIT_S", 0.01)
    done: list[str] = []
    release = threading.Event()

    def unsteady() -> dict[str, int]:
        done.append("unsteady")
        if done.count("unsteady") < 3:
            raise StoreUnavailable("locked")
        return {"number": 2}

    def lost() -> None:
        done.append("lost")
        raise StoreUnavailable("the disk is full")

    def broken() -> None:
        done.append("broken")
        raise ValueError("broken")

    def work(job: str, run: int, step: Step) -> None:
        done.append(f"{job}.{run}")
        assert step("unsteady", unsteady) == {"number": 2}
        with pytest.raises(StoreUnavailable, match="the disk is full"):
            step("lost", lost)
        with pytest.raises(ValueError, match="broken"):
            step("broken", broken)
        assert release.wait(PATIENCE_S)
        done.append("end")

    workflows = launched(work)
    assert workflows.known([A]) == {}
    workflows.hand_over(A)
    workflows.hand_over(A)
    wait_for(lambda: "broken" in done)
    taken = workflows.known([A])[A]
    assert (taken.state, taken.here) == ("taken", True)
    release.set()
    wait_for(lambda: workflows.known([A])[A].state == "over")
    assert done == ["ftjob-a.1", *["unsteady"] * 3, *["lost"] * room.ATTEMPTS, "broken", "end"]

    # Only once it is forgotten it is done anew.
    workflows.hand_over(A)
    workflows.forget(A)
    workflows.hand_over(A)
    wait_for(lambda: done.count("end") == 2)
    assert done.count("ftjob-a.1") == 2

    wait_for(lambda: workflows.known([A])[A].state == "over")
    workflows.tidy(datetime.now(UTC) - timedelta(days=1))
    assert A in workflows.known([A])
    workflows.tidy(datetime.now(UTC) + timedelta(days=1))
    assert workflows.known([A]) == {}
    # Nothing below a warning, and no advertisement, through the process's own handlers.
    levels = {record.levelno for record in caplog.records if record.name == "dbos"}
    assert levels == {logging.WARNING}


def test_who_takes_a_slot_goes_on_where_the_last_holder_was(
    launched: Callable[[Work], Workflows],
) -> None:
    done: list[str] = []
    stuck = threading.Event()

    def interrupted(job: str, run: int, step: Step) -> None:
        step("epoch 1", lambda: done.append("first epoch 1"))
        done.append("stuck")
        stuck.wait(PATIENCE_S)

    def resumed(job: str, run: int, step: Step) -> None:
        step("epoch 1", lambda: done.append("second epoch 1"))
        step("epoch 2", lambda: done.append(f"{job}.{run} epoch 2"))

    workflows = launched(interrupted)
    workflows.hand_over(A)
    wait_for(lambda: "stuck" in done)
    again = launched(resumed)
    wait_for(lambda: again.known([A])[A].state == "over")
    assert done == ["first epoch 1", "stuck", "ftjob-a.1 epoch 2"]
    stuck.set()


@pytest.mark.parametrize(
    "url",
    ["sqlite:////nowhere/at/all.sqlite", "postgresql://user:hidden@127.0.0.1:1/none", "nonsense"],
)
def test_a_database_that_cannot_be_used_is_one_clear_sentence(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    workflows = Workflows(url, "worker-1", 1, lambda *_: None)
    try:
        with pytest.raises(WorkflowsUnavailable, match="CAPSULE_TRAIN_DATABASE") as refused:
            workflows.launch()
    finally:
        workflows.close()
    assert "hidden" not in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("ENQUEUED", "waiting"),
        ("DELAYED", "waiting"),
        ("PENDING", "taken"),
        ("SUCCESS", "over"),
        ("ERROR", "over"),
        ("CANCELLED", "over"),
        ("MAX_RECOVERY_ATTEMPTS_EXCEEDED", "over"),
    ],
)
def test_states_in_the_dispatchers_words(status: str, state: Any) -> None:
    since = {"waiting": 2, "taken": 1, "over": 2}[state]
    found = handed(status, 1000, 2000, here=True)
    assert found == Handed(state, datetime.fromtimestamp(since, UTC), state == "taken")


def test_a_state_without_a_time_is_long_past() -> None:
    assert handed("PENDING", None, None, here=True).since < datetime(1980, 1, 1, tzinfo=UTC)


def test_passwords_are_not_shown() -> None:
    assert shown("postgresql://user:hidden@host/db") == "postgresql://user:***@host/db"


def test_the_errors_that_are_relied_on_are_there() -> None:
    assert not issubclass(faults.DBOSWorkflowConflictIDError, Exception)
    assert not issubclass(faults.DBOSWorkflowCancelledError, Exception)
