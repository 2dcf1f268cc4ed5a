import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from capsules.errors import ArtefactError, ArtefactFault, OptionError
from service.desk.desk import Desk
from service.desk.submission import Submission
from service.errors import (
    Conflict,
    PayloadTooLarge,
    ServiceError,
    Unavailable,
    Unprocessable,
)
from service.jobs.intake import apart
from service.jobs.intake.records import RowFile
from service.jobs.intake.spool import Spool
from service.jobs.records import Split
from service.jobs.spec import JobSpec
from service.jobs.sql import SqlLedger
from service.problems import InvalidRequest
from service.store.errors import StoreUnavailable
from tests.support.rehearsals import FakeRehearsal
from tests.support.row_files import bomb, four, labelled, row_files

SPEC = JobSpec(task="spam")


@pytest.fixture
def files(tmp_path: Path) -> Iterator[dict[Split, RowFile]]:
    with row_files(tmp_path, {"train": four()}) as files:
        yield files


@pytest.fixture
def submission(files: dict[Split, RowFile]) -> Submission:
    return Submission(SPEC, files)


def nothing_is_left(ledger: SqlLedger) -> bool:
    return not any(ledger.counts().values())


async def validating(ledger: SqlLedger, jobs: int) -> None:
    """Wait until so many jobs are being validated."""
    async with asyncio.timeout(20):
        while ledger.counts()["validating_files"] < jobs:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.01)


async def refusal(desk: Desk, submission: Submission) -> ServiceError:
    """Why a submission is refused, after which nothing of it may be left."""
    with pytest.raises(ServiceError) as caught:
        await desk.submit(submission)
    assert nothing_is_left(desk.ledger)  # type: ignore[arg-type]
    return caught.value


# --- taking in ------------------------------------------------------------------------------


async def test_a_job_is_queued_with_its_rows(
    desk: Desk, submission: Submission, ledger: SqlLedger, rehearsal: FakeRehearsal
) -> None:
    job, is_new = await desk.submit(submission)
    assert is_new
    assert (job.status, job.position) == ("queued", 1)
    assert job == ledger.get(job.id)
    assert job.files["train"].rows == 4
    assert ledger.data(job.id, "train")
    assert rehearsal.rehearsed == [("no", "yes")]


async def test_warnings_are_kept(desk: Desk, tmp_path: Path, ledger: SqlLedger) -> None:
    with row_files(tmp_path, {"train": four() * 2}) as files:
        job, _ = await desk.submit(Submission(SPEC, files))
    (warning,) = job.warnings
    assert warning.startswith("4 rows of train repeat earlier ones")
    assert warning in [event.message for event in ledger.events(job.id)[0]]


async def test_the_same_key_and_content_give_the_same_job(
    desk: Desk, files: dict[Split, RowFile], tmp_path: Path
) -> None:
    first, _ = await desk.submit(Submission(SPEC, files, "key"))
    again, is_new = await desk.submit(Submission(JobSpec(task="spam", seed=0), files, "key"))
    assert (again.id, is_new) == (first.id, False)
    for spec, changed in [
        (JobSpec(task="spam", seed=1), four()),
        (SPEC, four() + b"\n"),
    ]:
        with (
            row_files(tmp_path, {"train": changed}) as others,
            pytest.raises(Unprocessable) as caught,
        ):
            await desk.submit(Submission(spec, others, "key"))
        assert caught.value.code == "idempotency_key_reused"
    other, is_new = await desk.submit(Submission(SPEC, files, "another key"))
    assert other.id != first.id
    assert is_new


def test_whatever_was_submitted_is_in_the_digest(tmp_path: Path) -> None:
    digests = set()
    for contents in [
        {"train": b"a", "test": b"b"},
        {"train": b"b", "test": b"a"},
        {"train": b"a", "validation": b"b"},
        {"train": b"a"},
    ]:
        with row_files(tmp_path, contents) as files:  # type: ignore[arg-type]
            idempotency = Submission(SPEC, files, "key").idempotency
        assert idempotency is not None
        digests.add(idempotency.digest)
    assert len(digests) == 4
    assert Submission(SPEC, {}).idempotency is None


# --- refusals -------------------------------------------------------------------------------


async def test_rows_that_cannot_be_used_are_told_one_by_one(desk: Desk, tmp_path: Path) -> None:
    with row_files(tmp_path, {"train": b"no\n" * 30}) as files:
        error = await refusal(desk, Submission(SPEC, files))
    assert isinstance(error, InvalidRequest)
    assert (error.status, error.code, error.field) == (422, "too_many_bad_rows", "train")
    assert error.detail.startswith("train: 30 of the 30 rows read cannot be used")
    assert len(error.faults) == 20
    assert error.faults[6].field == "train"
    assert error.faults[6].message.startswith("line 7: malformed JSON")
    assert error.faults[6].code == "too_many_bad_rows"


async def test_rows_that_cannot_be_trained_on(desk: Desk, tmp_path: Path) -> None:
    with row_files(tmp_path, {"train": labelled(("a", "no"), ("b", "no"))}) as files:
        error = await refusal(desk, Submission(SPEC, files))
    assert (error.status, error.code, error.field) == (422, "one_class", "train")


async def test_a_bomb_is_too_large(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apart, "FEW_BYTES", 2**40)
    desk.max_bytes = 1_000_000
    with row_files(tmp_path, {"train": bomb(2_000_000)}) as files:
        error = await refusal(desk, Submission(SPEC, files))
    assert isinstance(error, PayloadTooLarge)
    assert (error.code, error.field) == ("file_too_large", "train")


@pytest.mark.parametrize(
    "failure",
    [
        OptionError("max_length 9 is too much; lower it.", field="max_length"),
        ArtefactError("No.", code=ArtefactFault.UNSUPPORTED_LAYERS, field="layers"),
    ],
)
async def test_a_rehearsal_that_fails(
    desk: Desk,
    submission: Submission,
    rehearsal: FakeRehearsal,
    failure: OptionError | ArtefactError,
) -> None:
    rehearsal.failure = failure
    error = await refusal(desk, submission)
    assert isinstance(error, Unprocessable)
    assert (error.code, error.field, error.detail) == (failure.code, failure.field, failure.message)


async def test_a_template_that_is_malformed(desk: Desk, files: dict[Split, RowFile]) -> None:
    error = await refusal(desk, Submission(JobSpec(task="spam", template="{text!r}"), files))
    assert (error.code, error.field) == ("invalid_template", "template")


async def test_options_that_no_manifest_holds(
    desk: Desk, submission: Submission, rehearsal: FakeRehearsal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rehearsal, "check", lambda *_: JobSpec.model_validate({"task": "A b"}))
    error = await refusal(desk, submission)
    assert isinstance(error, InvalidRequest)
    assert error.field == "task"


# --- crowds ---------------------------------------------------------------------------------


class Gate:
    """Holds a rehearsal up until it is opened."""

    def __init__(self, rehearsal: FakeRehearsal, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entered = threading.Semaphore(0)
        self.opened = threading.Event()
        check = rehearsal.check

        def held(*arguments: object) -> None:
            self.entered.release()
            self.opened.wait(20)
            check(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(rehearsal, "check", held)

    async def busy(self) -> None:
        """Wait until a rehearsal is held up."""
        await asyncio.to_thread(self.entered.acquire, timeout=20)


@pytest.fixture
def gate(rehearsal: FakeRehearsal, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate(rehearsal, monkeypatch)
    yield gate
    gate.opened.set()


async def test_a_few_are_checked_at_a_time_and_the_rest_told_to_come_back(
    desk: Desk, submission: Submission, gate: Gate, ledger: SqlLedger
) -> None:
    work = [asyncio.create_task(desk.submit(submission)) for _ in range(2)]
    for _ in work:
        await gate.busy()
    assert ledger.counts()["validating_files"] == 2
    with pytest.raises(Unavailable) as caught:
        await desk.submit(submission)
    assert caught.value.code == "busy"
    assert caught.value.retry_after
    # Jobs are looked up and cancelled meanwhile.
    assert await desk.ask(ledger.counts) == await desk.ask(ledger.counts)
    gate.opened.set()
    await asyncio.gather(*work)
    counts = ledger.counts()
    assert (counts["queued"], counts["validating_files"]) == (2, 0)


async def test_under_a_key_that_is_being_checked_nothing_is_taken(
    desk: Desk, files: dict[Split, RowFile], gate: Gate
) -> None:
    submission = Submission(SPEC, files, "key")
    work = asyncio.create_task(desk.submit(submission))
    await gate.busy()
    with pytest.raises(Conflict) as caught:
        await desk.submit(submission)
    assert caught.value.code == "idempotency_in_progress"
    gate.opened.set()
    job, _ = await work
    again, is_new = await desk.submit(submission)
    assert (again.id, is_new) == (job.id, False)


async def test_a_job_that_is_cancelled_while_it_is_checked(
    desk: Desk, submission: Submission, gate: Gate, ledger: SqlLedger
) -> None:
    work = asyncio.create_task(desk.submit(submission))
    await gate.busy()
    (job,), _ = ledger.page()
    await desk.change(ledger.cancel, job.id)
    gate.opened.set()
    with pytest.raises(Conflict) as caught:
        await work
    assert caught.value.code == "job_not_validating"
    assert ledger.get(job.id).status == "cancelled"


# --- clients that go away -------------------------------------------------------------------


async def test_of_a_client_that_goes_away_nothing_is_left(
    desk: Desk, submission: Submission, gate: Gate, ledger: SqlLedger
) -> None:
    work = asyncio.create_task(desk.submit(submission))
    await gate.busy()
    work.cancel()
    gate.opened.set()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert nothing_is_left(ledger)


async def test_one_that_goes_away_while_it_waits_is_not_waited_for(
    desk: Desk, submission: Submission, gate: Gate, ledger: SqlLedger
) -> None:
    desk.check_wait_s = 60
    work = [asyncio.create_task(desk.submit(submission)) for _ in range(2)]
    for _ in work:
        await gate.busy()
    third = asyncio.create_task(desk.submit(submission))
    await validating(ledger, 3)
    third.cancel()
    async with asyncio.timeout(5):
        with pytest.raises(asyncio.CancelledError):
            await third
    assert ledger.counts()["validating_files"] == 2
    gate.opened.set()
    await asyncio.gather(*work)


@pytest.mark.parametrize("method", ["open", "accept"])
async def test_one_that_goes_away_while_the_ledger_writes(
    desk: Desk,
    submission: Submission,
    ledger: SqlLedger,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
) -> None:
    entered, opened = threading.Event(), threading.Event()
    write: Callable[..., object] = getattr(ledger, method)

    def slow(*arguments: object) -> object:
        entered.set()
        opened.wait(20)
        return write(*arguments)

    monkeypatch.setattr(ledger, method, slow)
    work = asyncio.create_task(desk.submit(submission))
    await asyncio.to_thread(entered.wait, 20)
    work.cancel()
    await asyncio.sleep(0.01)
    opened.set()
    with pytest.raises(asyncio.CancelledError):
        await work
    counts = ledger.counts()
    # What was accepted will be done; what was not, is forgotten.
    assert counts["queued"] == (1 if method == "accept" else 0)
    assert counts["validating_files"] == 0


async def test_rows_in_a_process_are_given_up_at_once(
    desk: Desk,
    submission: Submission,
    ledger: SqlLedger,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    endless = tmp_path / "endless"
    endless.write_text("#!/bin/sh\nexec sleep 60\n")
    endless.chmod(0o700)
    monkeypatch.setattr("sys.executable", str(endless))
    monkeypatch.setattr(apart, "FEW_BYTES", 0)
    work = asyncio.create_task(desk.submit(submission))
    await validating(ledger, 1)
    await asyncio.sleep(0.1)
    work.cancel()
    async with asyncio.timeout(5):
        with pytest.raises(asyncio.CancelledError):
            await work
    assert nothing_is_left(ledger)


# --- a database that fails ------------------------------------------------------------------


@pytest.mark.parametrize("method", ["open", "accept"])
async def test_a_database_that_takes_nothing(
    desk: Desk,
    submission: Submission,
    ledger: SqlLedger,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
) -> None:
    def full(*_: object) -> None:
        raise StoreUnavailable("database or disk is full")

    monkeypatch.setattr(ledger, method, full)
    with capture_logs():
        error = await refusal(desk, submission)
    assert isinstance(error, Unavailable)
    assert error.code == "store_unavailable"


async def test_what_cannot_be_discarded_now_is_left_to_housekeeping(
    desk: Desk,
    submission: Submission,
    ledger: SqlLedger,
    rehearsal: FakeRehearsal,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object) -> None:
        raise StoreUnavailable("database or disk is full")

    monkeypatch.setattr(ledger, "discard", full)
    rehearsal.failure = OptionError("No.", field="layers")
    with capture_logs() as logs, pytest.raises(Unprocessable, match="No"):
        await desk.submit(submission)
    assert ledger.counts()["validating_files"] == 1
    assert "job_not_discarded" in [line["event"] for line in logs]


# --- files ----------------------------------------------------------------------------------


async def test_a_file_that_nobody_waits_for_any_more_is_closed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Spool] = []
    opened = threading.Event()

    class Slow(Spool):
        def __init__(self, *arguments: object) -> None:
            opened.wait(20)
            super().__init__(*arguments)  # type: ignore[arg-type]
            made.append(self)

    monkeypatch.setattr("service.desk.desk.Spool", Slow)
    monkeypatch.setattr(Slow, "close", Spool.close)
    work = asyncio.create_task(desk.spool("train"))
    await asyncio.sleep(0.01)
    work.cancel()
    opened.set()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert made[0].file.closed


async def test_a_file_is_released(desk: Desk) -> None:
    spool = await desk.spool("train")
    assert not spool.file.closed
    await desk.release(spool)
    assert spool.file.closed


# --- streams --------------------------------------------------------------------------------


def test_there_are_places_for_so_many_streams(desk: Desk) -> None:
    with desk.streaming():
        with desk.streaming(), pytest.raises(Unavailable, match="2 streams") as caught:
            desk.streaming().__enter__()
        assert caught.value.code == "too_many_streams"
        with desk.streaming():
            assert desk.streams == 2
    assert desk.streams == 0
