"""What a worker is promised of the ledger for the job it has claimed."""

import math
from dataclasses import replace
from typing import Any

import pytest
import structlog

from service.jobs.ledger import ClaimVoid, DefaultMoved
from service.jobs.records import Claim, JobError, JobResult, Progress
from service.jobs.sql import SqlLedger
from service.store.errors import InvalidValue
from tests.service.jobs.samples import (
    METRICS,
    REASON,
    Clock,
    activation,
    new_version,
    queued,
    report,
    running,
    slot,
    told,
)
from tests.service.store.samples import add

PROGRESS = Progress(epoch=2, epochs=50, step=3, steps=7, loss=0.5, seconds_left=12.5)


class TestStart:
    def test_takes_a_job_up(self, ledger: SqlLedger, clock: Clock) -> None:
        job = queued(ledger)
        clock.advance(5)
        started = ledger.start(Claim(job.id, 1, "token"), slot(ledger).name)
        assert started == replace(
            job, status="running", started_at=clock.now, worker="worker-1", position=None
        )
        assert ledger.get(job.id) == started
        assert ledger.queued() == []
        last = ledger.events(job.id)[0][-1]
        assert last.message == "worker-1 took the job up; it begins with its first epoch."
        assert last.data == {"status": "running", "worker": "worker-1", "run": 1, "crashes": 0}

    def test_twice_is_once(self, ledger: SqlLedger) -> None:
        claim = running(ledger)
        job = ledger.get(claim.job)
        events = told(ledger, claim.job)
        assert ledger.start(claim, "worker-1") == job
        assert told(ledger, claim.job) == events

    @pytest.mark.parametrize(
        "claim",
        [
            {"run": 0},
            {"run": 2},
            {"run": 2**200},
            {"token": "another"},
            {"token": "without a slot"},
            {"job": "ftjob-" + "0" * 24},
            {"job": "\ud800"},
        ],
    )
    def test_void_claims(self, ledger: SqlLedger, claim: dict[str, Any]) -> None:
        job = queued(ledger)
        slot(ledger)
        slot(ledger, "another")
        with pytest.raises(ClaimVoid):
            ledger.start(replace(Claim(job.id, 1, "token"), **claim), "worker-1")
        assert ledger.get(job.id) == job
        assert len(told(ledger, job.id)) == 2

    def test_a_job_of_another_slot(self, ledger: SqlLedger) -> None:
        claim = running(ledger)
        job = ledger.get(claim.job)
        other = slot(ledger, "other")
        with pytest.raises(ClaimVoid):
            ledger.start(replace(claim, token="other"), other.name)
        assert ledger.get(claim.job) == job

    def test_goes_on_after_a_resume(self, ledger: SqlLedger, clock: Clock) -> None:
        claim = running(ledger)
        started = clock.now
        ledger.finish_epoch(claim, report(1), b"state")
        ledger.cancel(claim.job)
        ledger.resume(claim.job)
        clock.advance(60)
        with pytest.raises(ClaimVoid):
            ledger.start(claim, "worker-1")
        job = ledger.start(replace(claim, run=2), "worker-1")
        assert (job.run, job.started_at, job.epochs) == (2, started, (report(1),))
        assert told(ledger, job.id)[-1].endswith("it goes on after epoch 1.")


class TestWrites:
    def test_progress_is_seen_and_no_event(self, ledger: SqlLedger) -> None:
        claim = running(ledger)
        events = told(ledger, claim.job)
        ledger.progress(claim, PROGRESS)
        assert ledger.get(claim.job).progress == PROGRESS
        ledger.progress(claim, Progress(2, 50, 4, 7, None, None))
        assert ledger.cancel(claim.job).progress == Progress(2, 50, 4, 7, None, None)
        assert told(ledger, claim.job)[:-1] == events

    def test_progress_that_is_no_number(self, ledger: SqlLedger) -> None:
        claim = running(ledger)
        with pytest.raises(InvalidValue, match="progress"):
            ledger.progress(claim, replace(PROGRESS, loss=math.nan))

    def test_says_things(self, ledger: SqlLedger, clock: Clock) -> None:
        claim = running(ledger)
        clock.advance(1)
        ledger.say(claim, "Careful\0 \ud800 🙂", level="warning", data={"rows": (1, 2)})
        ledger.say(claim, "Fine.")
        careful, fine = ledger.events(claim.job)[0][-2:]
        assert (careful.type, careful.level, careful.at) == ("message", "warning", clock.now)
        assert careful.message == "Careful\\x00 \\ud800 🙂"
        assert careful.data == {"rows": [1, 2]}
        assert (fine.level, fine.data) == ("info", {})

    def test_epochs_are_kept_with_their_checkpoint(self, ledger: SqlLedger) -> None:
        claim = running(ledger)
        assert ledger.checkpoint(claim.job) is None
        for epoch in (1, 2):
            ledger.finish_epoch(claim, report(epoch), b"state %d" % epoch)
        assert ledger.get(claim.job).epochs == (report(1), report(2))
        assert ledger.checkpoint(claim.job) == b"state 2"
        first, second = ledger.events(claim.job)[0][-2:]
        assert (first.type, first.data) == ("metrics", report(1))
        assert first.message == (
            "Epoch 1 took 1.5 s: training loss 1.0000, validation loss 2.0000, validation accuracy "
            "75.0%, the best so far."
        )
        assert "the best" not in second.message

    def test_an_epoch_is_kept_once(self, ledger: SqlLedger) -> None:
        claim = running(ledger)
        for epoch in (1, 2):
            ledger.finish_epoch(claim, report(epoch), b"state %d" % epoch)
        events = told(ledger, claim.job)
        for epoch in (2, 1):
            ledger.finish_epoch(claim, report(epoch), b"again")
        assert ledger.checkpoint(claim.job) == b"state 2"
        assert told(ledger, claim.job) == events

    @pytest.mark.parametrize("change", [{"epoch": "no"}, {"more": 1}, {"train_loss": math.inf}])
    def test_a_report_that_is_none(self, ledger: SqlLedger, change: dict[str, Any]) -> None:
        claim = running(ledger)
        with pytest.raises(InvalidValue, match="report"):
            ledger.finish_epoch(claim, report(1) | change, b"state")
        assert ledger.checkpoint(claim.job) is None

    def test_failing(self, ledger: SqlLedger, clock: Clock) -> None:
        claim = running(ledger)
        clock.advance(1)
        error = JobError("out_of_memory", "Lower batch_size \ud800.", "batch_size")
        ledger.fail(claim, error)
        job = ledger.get(claim.job)
        assert (job.status, job.finished_at, job.worker) == ("failed", clock.now, None)
        assert job.error == error
        last = ledger.events(claim.job)[0][-1]
        assert (last.level, last.data["error"]["code"]) == ("error", "out_of_memory")
        assert ledger.resume(job.id).error is None


class TestServed:
    def test_nothing(self, ledger: SqlLedger) -> None:
        assert ledger.served("spam") is None

    def test_the_newest(self, ledger: SqlLedger) -> None:
        for content in (b"one", b"two"):
            add(ledger.store, artefact=content)
        assert ledger.served("spam") == 2
        ledger.store.delete_version("spam", 2)
        assert ledger.served("spam") == 1

    def test_the_alias_where_it_is_set(self, ledger: SqlLedger) -> None:
        for content in (b"one", b"two"):
            add(ledger.store, artefact=content)
        ledger.store.set_alias("spam", "prod", 1)
        ledger.store.set_alias("spam", "canary", 2)
        assert ledger.served("spam") == 1

    def test_none_that_is_held(self, ledger: SqlLedger) -> None:
        ledger.succeed(running(ledger), new_version(), activation(activate=False), {})
        assert ledger.served("spam") is None
        ledger.store.set_alias("spam", "prod", 1)
        assert ledger.served("spam") == 1


class TestSucceed:
    def test_registers_and_ends(self, ledger: SqlLedger, clock: Clock) -> None:
        claim = running(ledger)
        clock.advance(60)
        version = new_version()
        record = ledger.succeed(claim, version, activation(), METRICS)
        assert ledger.store.get_version("spam", 1) == record
        assert (record.digest, record.source, record.size) == (version.digest, "training", 7)
        assert (record.job, record.held, record.created_at) == (claim.job, False, clock.now)
        assert ledger.store.artefact("spam", 1) == b"capsule"
        assert ledger.store.evaluation("spam", 1) == version.evaluation
        job = ledger.get(claim.job)
        assert (job.status, job.finished_at, job.worker) == ("succeeded", clock.now, None)
        assert job.result == JobResult("spam", 1, version.digest, True, REASON, METRICS)
        (change,) = ledger.store.changes_since(0)
        assert (change.kind, change.version) == ("version_added", 1)
        last = ledger.events(claim.job)[0][-1]
        assert last.message.endswith(REASON)
        assert last.data["version"] == 1
        assert last.data["activated"] is True

    def test_is_audited(self, ledger: SqlLedger) -> None:
        claim = running(ledger)
        with structlog.testing.capture_logs() as logs:
            record = ledger.succeed(claim, new_version(), activation(), METRICS)
        assert logs == [
            {
                "event": "audit",
                "log_level": "info",
                "action": "version_registered",
                "job": claim.job,
                "task": "spam",
                "version": 1,
                "digest": record.digest,
                "activated": True,
                "created": True,
            }
        ]

    def test_held_back(self, ledger: SqlLedger) -> None:
        add(ledger.store)
        claim = running(ledger)
        record = ledger.succeed(claim, new_version(), activation(1, activate=False), METRICS)
        assert (record.version, record.held) == (2, True)
        assert ledger.store.get_version("spam", 2) == record
        assert ledger.served("spam") == 1
        result = ledger.get(claim.job).result
        assert result is not None
        assert not result.activated
        assert "point the alias prod at it" in told(ledger, claim.job)[-1]

    def test_moves_the_alias_that_is_set(self, ledger: SqlLedger) -> None:
        add(ledger.store)
        ledger.store.set_alias("spam", "prod", 1)
        ledger.succeed(running(ledger), new_version(), activation(1), METRICS)
        alias = ledger.store.get_alias("spam", "prod")
        assert alias.version == 2
        assert alias.revision == ledger.store.head_sequence()
        assert [c.kind for c in ledger.store.changes_since(2)] == ["version_added", "alias_set"]

    def test_leaves_the_alias_of_what_it_does_not_beat(self, ledger: SqlLedger) -> None:
        add(ledger.store)
        ledger.store.set_alias("spam", "prod", 1)
        ledger.succeed(running(ledger), new_version(), activation(1, activate=False), METRICS)
        assert ledger.store.get_alias("spam", "prod").version == 1

    @pytest.mark.parametrize("activate", [True, False])
    @pytest.mark.parametrize("expected", [None, 1, 3])
    def test_another_is_served_by_now(
        self, ledger: SqlLedger, expected: int | None, activate: bool
    ) -> None:
        for content in (b"one", b"two"):
            add(ledger.store, artefact=content)
        claim = running(ledger)
        job, events = ledger.get(claim.job), told(ledger, claim.job)
        with pytest.raises(DefaultMoved, match="serves version 2"):
            ledger.succeed(claim, new_version(), activation(expected, activate=activate), METRICS)
        assert (ledger.get(claim.job), told(ledger, claim.job)) == (job, events)
        assert len(ledger.store.list_versions("spam")) == 2
        assert ledger.succeed(claim, new_version(), activation(2), METRICS).version == 3

    def test_void_claim_registers_nothing(self, ledger: SqlLedger) -> None:
        claim = running(ledger)
        ledger.cancel(claim.job)
        with structlog.testing.capture_logs() as logs, pytest.raises(ClaimVoid):
            ledger.succeed(claim, new_version(), activation(), METRICS)
        assert ledger.store.list_tasks() == []
        assert logs == []

    @pytest.mark.parametrize(
        ("change", "named"),
        [
            ({"digest": "0" * 64}, "digest"),
            ({"manifest": {"loss": math.nan}}, "manifest"),
            ({"evaluation": {"accuracy": math.nan}}, "evaluation"),
            ({"task": "ham"}, "task"),
        ],
    )
    def test_refuses_what_cannot_be_kept(
        self, ledger: SqlLedger, change: dict[str, Any], named: str
    ) -> None:
        claim = running(ledger)
        with pytest.raises(InvalidValue, match=named):
            ledger.succeed(claim, replace(new_version(), **change), activation(), METRICS)
        assert ledger.get(claim.job).status == "running"
        assert ledger.store.list_tasks() == []


class TestSucceedWithBytesThatAreThere:
    """A run with the same seed, options and rows gives the same file."""

    def activated(self, ledger: SqlLedger, claim: Claim) -> bool:
        result = ledger.get(claim.job).result
        assert result is not None
        return result.activated

    def test_gives_that_version(self, ledger: SqlLedger) -> None:
        first = ledger.succeed(running(ledger), new_version(), activation(), METRICS)
        head = ledger.store.head_sequence()
        claim = running(ledger)
        with structlog.testing.capture_logs() as logs:
            again = ledger.succeed(claim, new_version(), activation(1, activate=False), METRICS)
        assert again == first
        assert ledger.store.head_sequence() == head
        assert self.activated(ledger, claim)
        assert logs[0]["created"] is False

    def test_keeps_what_was_measured_first(self, ledger: SqlLedger) -> None:
        ledger.succeed(running(ledger), new_version(), activation(), METRICS)
        other = replace(new_version(), evaluation={"split": "test"})
        ledger.succeed(running(ledger), other, activation(1), METRICS)
        assert ledger.store.evaluation("spam", 1) == new_version().evaluation

    def test_measures_what_was_uploaded(self, ledger: SqlLedger) -> None:
        add(ledger.store, artefact=b"capsule")
        ledger.succeed(running(ledger), new_version(), activation(1), METRICS)
        assert ledger.store.evaluation("spam", 1) == new_version().evaluation
        assert ledger.store.get_version("spam", 1).job is None

    def test_serves_one_that_was_held(self, ledger: SqlLedger) -> None:
        ledger.succeed(running(ledger), new_version(), activation(activate=False), METRICS)
        head = ledger.store.head_sequence()
        claim = running(ledger)
        ledger.succeed(claim, new_version(), activation(), METRICS)
        assert ledger.served("spam") == 1
        assert self.activated(ledger, claim)
        assert [c.kind for c in ledger.store.changes_since(head)] == ["alias_set"]

    def test_serves_one_that_is_not_the_newest(self, ledger: SqlLedger) -> None:
        ledger.succeed(running(ledger), new_version(), activation(), METRICS)
        add(ledger.store)
        ledger.succeed(running(ledger), new_version(), activation(2), METRICS)
        assert ledger.served("spam") == 1
        assert ledger.store.get_alias("spam", "prod").version == 1
