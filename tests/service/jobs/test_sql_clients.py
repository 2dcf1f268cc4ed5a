"""What clients are promised of the ledger."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import event, text

from service.errors import Conflict, NotFound, ServiceError, Unprocessable
from service.jobs.ledger import ClaimVoid
from service.jobs.records import Claim, Idempotency, Job
from service.jobs.spec import JobSpec
from service.jobs.sql import SqlLedger
from service.store.errors import InvalidValue
from tests.service.jobs.samples import (
    FILES,
    Clock,
    activation,
    data_file,
    new_version,
    queued,
    report,
    running,
    slot,
    told,
    validating,
)

UNKNOWN = "ftjob-" + "0" * 24
KEY = Idempotency("key", "1" * 64)


class TestOpen:
    def test_begins_a_job(self, ledger: SqlLedger, clock: Clock) -> None:
        spec = JobSpec(
            task="spam",
            description="späm 🙂",
            labels=("ham", "spam"),
            verbalizers={"ham": "no", "spam": "yes"},
            layers=(1, 3),
            max_bad_rows=0.5,
            learning_rate=0.01,
            seed=2**63 - 1,
            metadata={"for": "Zoë\0"},
        )
        job, new = ledger.open(spec)
        assert new
        assert job == Job(job.id, spec, "validating_files", clock.now)
        assert re.fullmatch("ftjob-[0-9a-f]{24}", job.id)
        assert ledger.get(job.id) == job
        (opening,) = ledger.events(job.id)[0]
        assert (opening.number, opening.at, opening.level) == (1, clock.now, "info")
        assert opening.data == {"status": "validating_files"}

    def test_a_key_gives_the_job_that_came_of_it(self, ledger: SqlLedger, other: SqlLedger) -> None:
        job, _ = ledger.open(JobSpec(task="spam"), KEY)
        accepted = ledger.accept(job.id, FILES)
        assert other.open(JobSpec(task="spam"), KEY) == (accepted, False)
        assert ledger.page() == ([accepted], False)
        assert len(ledger.events(job.id)[0]) == 2

    def test_a_key_of_a_submission_that_is_being_validated(self, ledger: SqlLedger) -> None:
        ledger.open(JobSpec(task="spam"), KEY)
        with pytest.raises(Conflict, match="send it again") as caught:
            ledger.open(JobSpec(task="spam"), KEY)
        assert caught.value.code == "idempotency_in_progress"
        assert caught.value.retry_after == 1
        assert len(ledger.page()[0]) == 1

    @pytest.mark.parametrize("accepted", [False, True])
    def test_a_key_that_was_used_for_something_else(
        self, ledger: SqlLedger, accepted: bool
    ) -> None:
        job, _ = ledger.open(JobSpec(task="spam"), KEY)
        if accepted:
            ledger.accept(job.id, FILES)
        with pytest.raises(Unprocessable, match="use a new key") as caught:
            ledger.open(JobSpec(task="spam"), replace(KEY, digest="2" * 64))
        assert (caught.value.code, caught.value.field) == (
            "idempotency_key_reused",
            "Idempotency-Key",
        )
        assert len(ledger.page()[0]) == 1

    def test_a_key_goes_with_its_job(self, ledger: SqlLedger) -> None:
        first, _ = ledger.open(JobSpec(task="spam"), KEY)
        ledger.discard(first.id)
        second, new = ledger.open(JobSpec(task="spam"), KEY)
        assert new
        ledger.cancel(second.id)
        assert ledger.open(JobSpec(task="spam"), KEY)[0].id == second.id
        ledger.delete(second.id)
        assert ledger.open(JobSpec(task="spam"), KEY)[1]

    @pytest.mark.parametrize("key", ["", "x" * 256, "\ud800"])
    def test_a_key_that_cannot_be_kept(self, ledger: SqlLedger, key: str) -> None:
        with pytest.raises(InvalidValue):
            ledger.open(JobSpec(task="spam"), replace(KEY, key=key))
        assert ledger.page() == ([], False)


class TestAccept:
    def test_queues_the_job_with_its_rows(self, ledger: SqlLedger, clock: Clock) -> None:
        job = validating(ledger)
        clock.advance(1)
        accepted = ledger.accept(job.id, FILES, ["Two rows contradict.", "Few rows."])
        assert accepted == replace(
            job,
            status="queued",
            position=1,
            files={split: file.facts for split, file in FILES.items()},
            warnings=("Two rows contradict.", "Few rows."),
        )
        assert ledger.get(job.id) == accepted
        assert ledger.data(job.id, "train") == b"rows"
        assert ledger.data(job.id, "validation") == b"more"
        assert ledger.data(job.id, "test") is None
        _, *warnings, last = ledger.events(job.id)[0]
        assert [(e.level, e.message) for e in warnings] == [
            ("warning", "Two rows contradict."),
            ("warning", "Few rows."),
        ]
        assert "(9 train, 9 validation)" in last.message
        assert last.data == {
            "status": "queued",
            "rows": {"train": 9, "validation": 9},
            "position": 1,
        }

    def test_splits_come_in_the_order_of_their_use(self, ledger: SqlLedger) -> None:
        job = validating(ledger)
        file = data_file()
        accepted = ledger.accept(job.id, {"test": file, "train": file, "validation": file})
        assert list(accepted.files) == ["train", "validation", "test"]

    def test_any_mapping_of_classes(self, ledger: SqlLedger) -> None:
        job = validating(ledger)
        ledger.accept(job.id, {"train": data_file(classes=Counter({"ham": 2}))})
        assert ledger.get(job.id).files["train"].classes == {"ham": 2}

    def test_large_file(self, ledger: SqlLedger) -> None:
        content = bytes(range(256)) * (20 * 1024 * 4)
        job = validating(ledger)
        ledger.accept(job.id, {"train": data_file(content)})
        assert ledger.data(job.id, "train") == content

    def test_without_training_rows(self, ledger: SqlLedger) -> None:
        job = validating(ledger)
        with pytest.raises(InvalidValue, match="train"):
            ledger.accept(job.id, {"test": data_file()})
        assert ledger.get(job.id) == job

    def test_positions_follow_the_order_of_acceptance(
        self, ledger: SqlLedger, other: SqlLedger
    ) -> None:
        first, second, third = (validating(ledger) for _ in range(3))
        assert ledger.accept(third.id, FILES).position == 1
        assert other.accept(first.id, FILES).position == 2
        assert ledger.accept(second.id, FILES).position == 3
        assert ledger.queued() == [(third.id, 1), (first.id, 1), (second.id, 1)]
        other.cancel(first.id)
        assert ledger.get(second.id).position == 2
        assert ledger.get(first.id).position is None


class TestDiscard:
    def test_leaves_nothing(self, ledger: SqlLedger) -> None:
        job = validating(ledger)
        ledger.discard(job.id)
        with pytest.raises(NotFound):
            ledger.get(job.id)
        with ledger.store.reading() as session:
            assert session.scalar(text("SELECT count(*) FROM job_events")) == 0

    @pytest.mark.parametrize("job", [UNKNOWN, "", "\ud800", "x" * 100_000])
    def test_what_is_not_there(self, ledger: SqlLedger, job: str) -> None:
        ledger.discard(job)

    def test_leaves_what_is_validated(self, ledger: SqlLedger) -> None:
        job = queued(ledger)
        ledger.discard(job.id)
        assert ledger.get(job.id) == job

    def test_stale_ones(self, ledger: SqlLedger, clock: Clock) -> None:
        old, kept = validating(ledger), queued(ledger)
        before = clock.advance(0.000001)
        young = validating(ledger)
        assert ledger.discard_stale(before) == 1
        assert [job.id for job in ledger.page()[0]] == [young.id, kept.id]
        assert ledger.discard_stale(before) == 0
        with pytest.raises(NotFound):
            ledger.accept(old.id, FILES)


def calls(ledger: SqlLedger, job: str) -> list[Callable[[], object]]:
    return [
        lambda: ledger.get(job),
        lambda: ledger.accept(job, FILES),
        lambda: ledger.events(job),
        lambda: ledger.cancel(job),
        lambda: ledger.resume(job),
        lambda: ledger.delete(job),
        lambda: ledger.page(after=job),
    ]


@pytest.mark.parametrize(
    "job",
    [UNKNOWN, UNKNOWN + "\n", UNKNOWN.upper(), "", "\0", "\ud800", "späm", "x" * 100_000, "' OR 1"],
)
def test_unknown_ids(ledger: SqlLedger, job: str) -> None:
    queued(ledger)
    for call in calls(ledger, job):
        with pytest.raises(NotFound, match="list the jobs") as caught:
            call()
        assert caught.value.code == "job_not_found"
        assert len(caught.value.detail) < 500
    assert ledger.data(job, "train") is None
    assert ledger.checkpoint(job) is None


@contextmanager
def statements_of(ledger: SqlLedger) -> Iterator[list[str]]:
    """What the database is asked."""
    statements: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        statements.append(statement)

    event.listen(ledger.store.engine, "before_cursor_execute", note)
    yield statements
    event.remove(ledger.store.engine, "before_cursor_execute", note)


class TestPage:
    @pytest.fixture
    def jobs(self, ledger: SqlLedger) -> list[Job]:
        """Five of two tasks, newest first, all submitted at the same time."""
        tasks = ["a", "b", "a", "b", "a"]
        return [validating(ledger, task=task) for task in tasks][::-1]

    def test_newest_first(self, ledger: SqlLedger, jobs: list[Job]) -> None:
        assert ledger.page() == (jobs, False)
        assert ledger.page(limit=5) == (jobs, False)

    def test_pages_meet(self, ledger: SqlLedger, jobs: list[Job]) -> None:
        first, more = ledger.page(limit=2)
        assert (first, more) == (jobs[:2], True)
        second, more = ledger.page(after=first[-1].id, limit=2)
        assert (second, more) == (jobs[2:4], True)
        validating(ledger)
        assert ledger.page(after=second[-1].id, limit=2) == (jobs[4:], False)
        assert ledger.page(after=jobs[-1].id) == ([], False)

    def test_filters(self, ledger: SqlLedger, jobs: list[Job]) -> None:
        one = ledger.accept(jobs[1].id, FILES)
        assert ledger.page(task="b") == ([one, jobs[3]], False)
        assert ledger.page(status="queued") == ([one], False)
        assert ledger.page(status="queued", task="a") == ([], False)
        assert ledger.page(after=one.id, task="b") == (jobs[3:4], False)

    def test_after_a_job_that_the_filter_leaves_out(
        self, ledger: SqlLedger, jobs: list[Job]
    ) -> None:
        ledger.cancel(jobs[2].id)
        assert ledger.page(after=jobs[2].id, status="validating_files") == (jobs[3:], False)

    def test_after_is_named(self, ledger: SqlLedger) -> None:
        with pytest.raises(NotFound) as caught:
            ledger.page(after=UNKNOWN)
        assert caught.value.field == "after"

    @pytest.mark.parametrize("limit", [0, -1])
    def test_limit(self, ledger: SqlLedger, limit: int) -> None:
        with pytest.raises(InvalidValue, match="limit"):
            ledger.page(limit=limit)
        with pytest.raises(InvalidValue, match="limit"):
            ledger.events(validating(ledger).id, limit=limit)

    def test_reads_no_bytes(self, ledger: SqlLedger) -> None:
        claim = running(ledger)
        ledger.finish_epoch(claim, report(1), b"state")
        with statements_of(ledger) as statements:
            (job,), _ = ledger.page()
            assert (len(job.files), len(job.epochs)) == (2, 1)
            assert ledger.get(claim.job) == job
        assert statements
        assert not [statement for statement in statements if "content" in statement]


class TestEvents:
    def test_pages_meet(self, ledger: SqlLedger) -> None:
        claim = running(ledger)
        for number in range(5):
            ledger.say(claim, f"message {number}")
        events, more = ledger.events(claim.job)
        assert not more
        assert [e.number for e in events] == list(range(1, 9))
        assert {e.job for e in events} == {claim.job}
        assert ledger.events(claim.job, limit=3) == (events[:3], True)
        assert ledger.events(claim.job, after=3, limit=5) == (events[3:], False)
        assert ledger.events(claim.job, after=8) == ([], False)

    @pytest.mark.parametrize("after", [9, 2**31, 2**64, 2**200])
    def test_after_the_end(self, ledger: SqlLedger, after: int) -> None:
        assert ledger.events(queued(ledger).id, after=after) == ([], False)

    @pytest.mark.parametrize("after", [-1, -(2**200)])
    def test_before_the_beginning(self, ledger: SqlLedger, after: int) -> None:
        assert len(ledger.events(queued(ledger).id, after=after)[0]) == 2

    def test_numbers_are_of_the_job(self, ledger: SqlLedger) -> None:
        jobs = [queued(ledger), queued(ledger)]
        for job in jobs:
            assert [e.number for e in ledger.events(job.id)[0]] == [1, 2]


class TestResume:
    def test_goes_on_where_it_was(self, ledger: SqlLedger, clock: Clock) -> None:
        claim = running(ledger)
        ledger.finish_epoch(claim, report(1), b"state")
        started = clock.now
        clock.advance(10)
        ended = ledger.cancel(claim.job)
        assert (ended.finished_at, ended.worker, ended.run) == (clock.now, None, 1)
        waiting = queued(ledger)
        job = ledger.resume(claim.job)
        assert (job.status, job.run, job.position) == ("queued", 2, 2)
        assert (job.started_at, job.finished_at) == (started, None)
        assert job.epochs == (report(1),)
        assert ledger.checkpoint(job.id) == b"state"
        assert ledger.queued() == [(waiting.id, 1), (job.id, 2)]
        assert told(ledger, job.id)[-1] == (
            "The job was resumed; it is queued and goes on after epoch 1."
        )

    def test_without_rows(self, ledger: SqlLedger) -> None:
        job = validating(ledger)
        ledger.cancel(job.id)
        with pytest.raises(Conflict, match="before its rows were accepted") as caught:
            ledger.resume(job.id)
        assert caught.value.code == "job_not_resumable"


class TestDelete:
    def test_leaves_the_version(self, ledger: SqlLedger) -> None:
        claim = running(ledger)
        ledger.finish_epoch(claim, report(1), b"state")
        record = ledger.succeed(claim, new_version(), activation(), {})
        ledger.delete(claim.job)
        with ledger.store.reading() as session:
            for table in ("jobs", "job_files", "job_events", "job_checkpoints"):
                assert session.scalar(text(f"SELECT count(*) FROM {table}")) == 0
        assert ledger.store.list_versions("spam") == [record]
        assert record.job == claim.job

    def test_leaves_other_jobs(self, ledger: SqlLedger) -> None:
        first, second = queued(ledger), queued(ledger)
        ledger.cancel(first.id)
        ledger.delete(first.id)
        assert ledger.page() == ([ledger.get(second.id)], False)
        assert ledger.data(second.id, "train") == b"rows"


def test_counts(ledger: SqlLedger) -> None:
    zeros = dict.fromkeys(
        ["validating_files", "queued", "running", "succeeded", "failed", "cancelled"], 0
    )
    assert ledger.counts() == zeros
    validating(ledger)
    queued(ledger)
    queued(ledger)
    running(ledger)
    assert ledger.counts() == zeros | {"validating_files": 1, "queued": 2, "running": 1}


@pytest.mark.parametrize("damage", ["'no JSON'", "'[]'", "X'7B22FF'", "'{\"task\": 5}'"])
class TestOptionsThatCannotBeRead:
    @pytest.fixture
    def job(self, ledger: SqlLedger, damage: str) -> Job:
        job = queued(ledger, description="mine")
        with ledger.store.writing() as session:
            session.execute(text(f"UPDATE jobs SET spec = {damage}"))
        return job

    def test_do_not_hide_the_job(self, ledger: SqlLedger, job: Job) -> None:
        (seen,), _ = ledger.page()
        assert seen.spec == JobSpec(task="spam")
        assert "made up" in seen.warnings[-1]
        assert seen == ledger.get(job.id) == replace(job, spec=seen.spec, warnings=seen.warnings)

    def test_fail_the_job_that_is_taken_up(self, ledger: SqlLedger, job: Job) -> None:
        with pytest.raises(ClaimVoid):
            ledger.start(Claim(job.id, 1, "token"), slot(ledger).name)
        error = ledger.get(job.id).error
        assert error is not None
        assert error.code == "job_damaged"
        ledger.delete(job.id)


@pytest.mark.parametrize("damage", ["'no JSON'", "'[]'", "'{}'", "X'FF'", "'7'"])
@pytest.mark.parametrize(
    ("table", "column", "shown"),
    [
        ("jobs", "warnings", {"warnings": ()}),
        ("jobs", "progress", {"progress": None}),
        ("jobs", "error", {"error": None}),
        ("jobs", "result", {"result": None}),
        ("jobs", "started_at", {"started_at": None}),
        ("job_files", "facts", {"files": {}}),
    ],
)
def test_what_cannot_be_read_is_left_out(
    ledger: SqlLedger, table: str, column: str, damage: str, shown: dict[str, Any]
) -> None:
    job = queued(ledger)
    with ledger.store.writing() as session:
        session.execute(text(f"UPDATE {table} SET {column} = {damage}"))
    assert ledger.get(job.id) == replace(job, **shown)
    assert ledger.cancel(job.id).status == "cancelled"


def test_errors_are_the_services_own(ledger: SqlLedger) -> None:
    job = queued(ledger)
    for call in (ledger.resume, ledger.delete):
        with pytest.raises(ServiceError) as caught:
            call(job.id)
        assert job.id in caught.value.detail
        assert caught.value.detail.endswith(".")
