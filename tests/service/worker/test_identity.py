import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from service.jobs.records import Slot
from service.worker import identity
from service.worker.identity import Identity, is_dead, started, this_process, vacant

NOW = datetime(2026, 1, 2, tzinfo=UTC)
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="nothing is known elsewhere")


def slot_of(process: Identity, **changes: object) -> Slot:
    slot = Slot("worker-1", process.token, process.host, process.pid, NOW, released=False)
    return replace(slot, **changes)  # type: ignore[arg-type]


def test_every_token_is_new_and_fits_the_ledger() -> None:
    first, second = this_process(), this_process()
    assert first.token != second.token
    assert (first.place, first.pid) == (second.place, os.getpid())
    assert len(first.token) <= 64


def test_a_living_process_is_not_dead() -> None:
    here = this_process()
    assert not is_dead(slot_of(here), here.place)


@linux_only
def test_a_process_that_has_ended_is_dead_before_and_after_it_is_reaped() -> None:
    here = this_process()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    parts = here.token.split(".")
    token = ".".join((parts[0], started(child.pid), parts[2]))
    slot = slot_of(here, pid=child.pid, token=token)
    assert not is_dead(slot, here.place)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert is_dead(slot, here.place)
    child.communicate()
    assert is_dead(slot, here.place)


@linux_only
def test_another_process_of_the_same_id_does_not_stand_in_for_it() -> None:
    here = this_process()
    place, start, secret = here.token.split(".")
    assert is_dead(slot_of(here, token=f"{place}.{int(start) - 1}.{secret}"), here.place)


def test_nothing_is_known_of_processes_elsewhere() -> None:
    here = this_process()
    gone = slot_of(here, pid=2**22 + 1)
    assert not is_dead(gone, "elsewhere")


def test_where_the_kernel_tells_nothing_nobody_is_known_to_be_dead(
    monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    monkeypatch.setattr(identity, "PROC", tmp_path)
    here = this_process()
    assert here.token.split(".")[1] == identity.UNKNOWN
    assert not is_dead(slot_of(here, pid=2**22 + 1), here.place)


def test_slots_of_the_stale_and_of_the_dead_can_be_taken() -> None:
    here = this_process()
    alive = slot_of(here)
    stale = slot_of(here, token="elsewhere.1.stale", seen_at=NOW - timedelta(seconds=21))
    fresh = slot_of(here, token="elsewhere.1.fresh")
    limit = NOW - timedelta(seconds=20)
    assert vacant([alive, stale, fresh], here.place, limit) == ["elsewhere.1.stale"]
