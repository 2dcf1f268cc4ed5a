import gzip
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from service.errors import DeadlineExceeded, InternalError
from service.jobs.intake import apart
from service.jobs.intake.apart import Examination
from service.jobs.intake.records import Findings, Refused, RowFile
from service.jobs.records import Split
from tests.support.row_files import bomb, demands, four, labelled, row_files

Files = dict[Split, RowFile]


def many(rows: int) -> bytes:
    return labelled(*[(f"a text with the number {row}", f"label {row % 3}") for row in range(rows)])


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Files]:
    """Files that count as too large to be examined here."""
    monkeypatch.setattr(apart, "FEW_BYTES", 1000)
    with row_files(tmp_path, {"train": many(100), "test": four()}) as files:
        yield files


def examination(files: Files, limit_s: float = 60) -> Examination:
    return Examination(files, demands(), limit_s)


def test_few_rows_are_examined_here(tmp_path: Path) -> None:
    with row_files(tmp_path, {"train": four()}) as files:
        work = examination(files)
        assert isinstance(work.run(), Findings)
    assert work.process is None


def test_many_rows_are_examined_in_a_process_with_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with row_files(tmp_path, {"train": many(18_000)}) as files:
        assert files["train"].size > apart.FEW_BYTES
        work = examination(files)
        there = work.run()
        monkeypatch.setattr(apart, "FEW_BYTES", 2**40)
        here = examination(files).run()
    assert work.process is not None
    assert isinstance(there, Findings)
    assert there == here


def test_what_is_refused_there_is_told_here(large: Files) -> None:
    refusal = examination(large).run()
    assert isinstance(refusal, Refused)
    assert (refusal.code, refusal.field) == ("unknown_label", "test")


def test_a_small_file_may_unpack_to_many_rows(tmp_path: Path) -> None:
    content = gzip.compress(many(500))
    assert len(content) < apart.FEW_BYTES / 2
    with row_files(tmp_path, {"train": content}) as files:
        work = examination(files)
        assert isinstance(work.run(), Findings)
    assert work.process is not None


def test_a_bomb_is_met_in_a_process(tmp_path: Path) -> None:
    with row_files(tmp_path, {"train": bomb(20_000_000)}) as files:
        assert files["train"].size < apart.FEW_BYTES
        work = examination(files)
        refusal = work.run()
    assert work.process is not None
    assert isinstance(refusal, Refused)
    assert refusal.code == "row_too_large"


def started(work: Examination) -> subprocess.Popen[bytes]:
    end = time.monotonic() + 20
    while work.process is None:
        assert time.monotonic() < end
        time.sleep(0.001)
    return work.process


def test_it_can_be_stopped(large: Files) -> None:
    work = examination(large)
    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(work.run()))
    thread.start()
    process = started(work)
    work.stop()
    thread.join(20)
    assert results == [None]
    assert process.returncode == -signal.SIGKILL


def test_it_may_be_stopped_before_it_begins(large: Files) -> None:
    work = examination(large)
    work.stop()
    assert work.run() is None
    assert work.process is None


def test_a_process_that_takes_too_long_is_ended(large: Files) -> None:
    work = examination(large, limit_s=0.001)
    with pytest.raises(DeadlineExceeded, match="send fewer") as caught:
        work.run()
    assert (caught.value.code, caught.value.field) == ("deadline_exceeded", "train")
    assert work.process is not None
    assert work.process.returncode == -signal.SIGKILL


def test_a_process_that_dies_is_an_error_of_ours(large: Files) -> None:
    work = examination(large)
    errors: list[InternalError] = []

    def run() -> None:
        with pytest.raises(InternalError) as caught:
            work.run()
        errors.append(caught.value)

    with capture_logs() as logs:
        thread = threading.Thread(target=run)
        thread.start()
        os.kill(started(work).pid, signal.SIGKILL)
        thread.join(20)
    (error,) = errors
    assert error.code == "examination_died"
    assert (logs[0]["event"], logs[0]["status"]) == ("examination_died", -signal.SIGKILL)


def test_a_process_that_fails_tells_the_log_alone(
    large: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with capture_logs() as logs, pytest.raises(InternalError, match="look into its log"):
        examination(large).run()
    assert logs[0]["status"] == 1


def test_a_process_ends_once_nobody_reads_what_it_finds() -> None:
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "service.jobs.intake"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.close()
        # Its input stays open, so that there is nothing else it would end for.
        assert child.wait(30) == 1
