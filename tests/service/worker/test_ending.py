import os
import signal
import subprocess
import sys
import threading

import pytest
from structlog.testing import capture_logs

from service.worker.ending import FAILURE, SUCCESS, Ending, repeat
from tests.support.commands import ROOT

PATIENCE_S = 20.0


def test_the_first_to_ask_decides() -> None:
    ending = Ending()
    ending.ask(FAILURE)
    ending.ask(SUCCESS)
    assert not ending.begun.is_set()
    assert ending.wait() == FAILURE
    assert ending.begun.is_set()


def test_something_is_done_again_and_again_until_the_end() -> None:
    ending = Ending()
    often = threading.Event()
    times: list[int] = []

    def act() -> None:
        times.append(1)
        if len(times) == 3:
            often.set()

    repeat("acting", 0.001, act, ending)
    assert often.wait(PATIENCE_S)
    ending.ask(SUCCESS)
    ending.wait()
    for thread in threading.enumerate():
        if thread.name == "acting":
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


def test_what_breaks_ends_the_process() -> None:
    ending = Ending()

    def act() -> None:
        raise ValueError

    with capture_logs() as logs:
        repeat("acting", 0.001, act, ending)
        assert ending.wait() == FAILURE
    assert [(log["event"], log["part"]) for log in logs] == [("worker_failed", "acting")]


SCRIPT = """
import sys, threading, time
from service.worker.ending import *
ending = Ending()
end_on_signals(ending)
if sys.argv[1] == "supervised":
    end_with_parent(ending)
threading.Thread(target=time.sleep, args=(60,)).start()
print("ready", flush=True)
status = ending.wait()
print("ending")
leave(status)
"""


def started(kind: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, kind],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_whatever_its_threads_do(number: int) -> None:
    with started("alone") as process:
        os.kill(process.pid, number)
        assert process.stdout is not None
        assert process.stdout.read() == "ending\n"
        assert process.wait(PATIENCE_S) == SUCCESS


def test_a_supervised_one_ends_with_its_standard_input() -> None:
    with started("supervised") as process:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(PATIENCE_S) == SUCCESS
