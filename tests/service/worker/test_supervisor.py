import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ByteSize
from structlog.testing import capture_logs

from service.settings import Settings, load_settings
from service.worker.resources import QUIET_THREADS
from service.worker.supervisor import (
    COMMAND,
    Supervisor,
    as_environment,
    next_delay,
    supervisor_for,
)
from tests.support.commands import ROOT

PATIENCE_S = 20.0

RUNS = "import sys; open(sys.argv[1], 'a').write('run\\n')\n"
STAYS = RUNS + "sys.stdin.read()\n"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + STAYS


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.01)


def runs(log: Path) -> int:
    return len(log.read_text().splitlines()) if log.exists() else 0


def supervisor(code: str, log: Path, grace_s: float = PATIENCE_S) -> Supervisor:
    command = [sys.executable, "-c", code, str(log)]
    return Supervisor(command, os.environ, grace_s=grace_s)


def test_a_child_is_started_and_ended(tmp_path: Path) -> None:
    log = tmp_path / "log"
    keeper = supervisor(STAYS, log)
    keeper.start()
    wait_for(lambda: runs(log) == 1)
    child = keeper.child
    assert child is not None
    began = time.monotonic()
    keeper.stop()
    assert child.returncode == -signal.SIGTERM
    assert time.monotonic() - began < 5
    keeper.stop()
    assert runs(log) == 1


def test_a_child_that_dies_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.worker.supervisor.FIRST_DELAY_S", 0.01)
    log = tmp_path / "log"
    with capture_logs() as logs:
        keeper = supervisor(RUNS + "sys.exit(3)", log)
        keeper.start()
        wait_for(lambda: runs(log) >= 3)
        keeper.stop()
    deaths = [one for one in logs if one["event"] == "worker_died"]
    assert {one["status"] for one in deaths} == {3}
    assert [one["restart_in_s"] for one in deaths[:2]] == [0.01, 0.02]


def test_the_wait_for_a_restart_ends_with_the_server(tmp_path: Path) -> None:
    log = tmp_path / "log"
    keeper = supervisor(RUNS, log)
    with capture_logs() as logs:
        keeper.start()
        wait_for(lambda: bool(logs))
        began = time.monotonic()
        keeper.stop()
    assert time.monotonic() - began < 0.9
    assert runs(log) == 1


def test_a_child_that_does_not_end_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    keeper = supervisor(STUBBORN, log, grace_s=0.2)
    keeper.start()
    wait_for(lambda: runs(log) == 1)
    child = keeper.child
    with capture_logs() as logs:
        keeper.stop()
    assert child is not None
    assert child.returncode == -signal.SIGKILL
    # A worker of another test may still be on its way out, and tell of it.
    assert [one["event"] for one in logs if one["event"] != "slot_lost"] == ["worker_killed"]


def test_what_was_never_started_is_stopped_at_once(tmp_path: Path) -> None:
    keeper = supervisor(RUNS, tmp_path / "log")
    keeper.stop()
    keeper.start()
    assert keeper.thread.ident is None
    assert runs(tmp_path / "log") == 0


def test_one_that_is_not_wanted_as_it_starts_ends_at_once(tmp_path: Path) -> None:
    keeper = supervisor(STAYS, tmp_path / "log")
    keeper.stopping = True
    began = time.monotonic()
    keeper.main()
    assert time.monotonic() - began < 5


def test_a_command_that_is_not_there_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("service.worker.supervisor.FIRST_DELAY_S", 0.01)
    keeper = Supervisor(["/nowhere/at/all"], {})
    with capture_logs() as logs:
        keeper.start()
        wait_for(lambda: len(logs) >= 4)
        keeper.stop()
    assert [one["event"] for one in logs[:4]] == ["worker_not_started", "worker_died"] * 2


def test_a_child_hears_of_it_when_its_parent_is_killed(tmp_path: Path) -> None:
    """The pipe that is its standard input is closed by the kernel, whatever became of the parent."""
    log, over = tmp_path / "log", tmp_path / "over"
    child = STAYS + f"open({str(over)!r}, 'w')"
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import os, sys, time; from service.worker.supervisor import Supervisor;"
            f"Supervisor([sys.executable, '-c', {child!r}, {str(log)!r}], os.environ).start();"
            "time.sleep(60)",
        ],
        cwd=ROOT,
    )
    wait_for(lambda: runs(log) == 1)
    assert not over.exists()
    parent.kill()
    parent.wait()
    wait_for(over.exists)


@pytest.mark.parametrize(
    ("delay", "lived", "expected"),
    [(0, 0.1, 1), (1, 0.1, 2), (2, 59, 4), (16, 1, 30), (30, 1, 30), (30, 60, 1)],
)
def test_the_delay_doubles_until_a_child_has_settled(delay, lived, expected) -> None:
    assert next_delay(delay, lived) == expected


def test_a_child_reads_the_settings_of_its_parent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CAPSULE_DEVICE", "cuda")
    monkeypatch.setenv("CAPSULE_TRAIN_THREADS", "7")
    settings = load_settings(
        data_dir=str(tmp_path / "a b"),
        device="cpu",
        train_memory="3GiB",
        load_zoo=False,
        shutdown_grace_s=1.5,
        caller_weights={"10.1.2.3": 0.1, "::1": 3},
        log_level="debug",
    )
    for name, value in as_environment(settings).items():
        monkeypatch.setenv(name, value)
    assert load_settings() == settings
    assert settings.train_memory == ByteSize(3 * 1024**3)
    keeper = supervisor_for(settings)
    assert keeper.command == COMMAND
    assert QUIET_THREADS.items() <= keeper.environment.items()
    assert keeper.environment["CAPSULE_TRAIN_THREADS"] == "7"


def test_defaults_are_read_as_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in as_environment(Settings()).items():
        monkeypatch.setenv(name, value)
    assert load_settings() == Settings()
