import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from structlog.testing import capture_logs

from capsules.artefact.file import Capsule, digest, dump, parse
from capsules.backbones.base import LoadedBackbone
from capsules.errors import OptionError, TrainingError, TrainingFault
from capsules.executors.torch import TorchExecutor
from capsules.training.finish import finish
from capsules.training.run import Run
from service.errors import Unprocessable
from service.jobs.ledger import ClaimVoid
from service.jobs.records import Activation, Claim, Job, NewVersion, Progress
from service.jobs.sql import SqlLedger
from service.jobs.tables import CheckpointRow
from service.store.base import VersionRecord
from service.store.errors import StoreUnavailable
from service.store.sqlite import SqliteStore
from service.worker.training import Training, options, prove
from tests.service.worker.conftest import TOKEN, Begin
from tests.service.worker.samples import at_once, capsule_of, learned, measured, told
from tests.support.backbones import tiny_bert
from tests.support.capsules import random_capsule
from tests.support.datasets import separable

VALIDATION, TEST = separable(14, seed=2), separable(10, seed=3)


def training(
    ledger: SqlLedger, tiny: LoadedBackbone, claim: Claim, job: Job, kind: type = Training
) -> Training:
    made: Training = kind(ledger, ledger.store, tiny, TorchExecutor(tiny.backbone), claim, job)
    return made


@pytest.fixture
def train(ledger: SqlLedger, tiny: LoadedBackbone, begin: Begin) -> Callable[..., Job]:
    """Trains a job to its end."""

    def call(**given: Any) -> Job:
        claim, job = begin(**given)
        training(ledger, tiny, claim, job).train(at_once)
        return ledger.get(job.id)

    return call


def test_a_job_comes_to_a_version_that_is_evaluated_and_served(
    ledger: SqlLedger, store: SqliteStore, train: Callable[..., Job]
) -> None:
    job = train(validation=VALIDATION, test=TEST, description="Yes or no.")
    assert (job.status, len(job.epochs)) == ("succeeded", 3)
    assert job.result is not None
    assert (job.result.task, job.result.version, job.result.activated) == ("tiny", 1, True)
    assert job.result.metrics.keys() == {
        *("validation_accuracy", "validation_loss", "validation_macro_f1"),
        *("test_accuracy", "test_macro_f1"),
    }
    assert ledger.served("tiny") == 1
    record = store.get_version("tiny", 1)
    assert (record.source, record.job, record.digest) == ("training", job.id, job.result.digest)
    evaluation = store.evaluation("tiny", 1)
    assert evaluation is not None
    assert (evaluation["split"], evaluation["examples"]) == ("test", 10)
    assert evaluation["accuracy"] == job.result.metrics["test_accuracy"]
    manifest = capsule_of(store, job).manifest
    assert manifest.training is not None
    assert manifest.training.splits.model_dump() == {"train": 36, "validation": 14, "test": 10}
    assert manifest.training.metrics == job.result.metrics
    assert manifest.training.data_digest == separable(36, seed=1).digest
    assert manifest.description == "Yes or no."
    assert len(manifest.golden) == 8


def test_without_test_rows_it_is_evaluated_on_the_validation_rows(
    store: SqliteStore, train: Callable[..., Job]
) -> None:
    job = train()
    evaluation = store.evaluation("tiny", 1)
    assert evaluation is not None
    assert evaluation["split"] == "validation"
    assert job.result is not None
    assert evaluation["accuracy"] == job.result.metrics["validation_accuracy"]
    assert "test_accuracy" not in job.result.metrics


def test_a_second_version_has_to_be_better(ledger: SqlLedger, train: Callable[..., Job]) -> None:
    train(validation=VALIDATION)
    job = train(validation=VALIDATION, description="Another file.")
    assert job.result is not None
    assert (job.result.version, job.result.activated) == (2, False)
    assert "not better than the" in job.result.reason
    assert ledger.served("tiny") == 1


def test_with_a_least_score_it_does_not(ledger: SqlLedger, train: Callable[..., Job]) -> None:
    train(validation=VALIDATION)
    train(validation=VALIDATION, min_metric=0.0, description="Another file.")
    assert ledger.served("tiny") == 2


class Interrupted(BaseException):
    """The process was killed."""


class Killed(SqlLedger):
    """A ledger whose process dies as it keeps an epoch, before or after that is on disk."""

    epoch = 0
    after = False

    def finish_epoch(self, claim: Claim, report: Mapping[str, Any], checkpoint: bytes) -> None:
        if report["epoch"] != self.epoch:
            super().finish_epoch(claim, report, checkpoint)
            return
        if self.after:
            super().finish_epoch(claim, report, checkpoint)
        raise Interrupted


class Remembered:
    """A `Step` as durable as DBOS's: what a step gave is remembered, once it has given it."""

    def __init__(self) -> None:
        self.results: dict[str, Any] = {}

    def __call__(self, name: str, part: Callable[[], Any]) -> Any:
        if name not in self.results:
            self.results[name] = part()
        return self.results[name]


@pytest.mark.parametrize("variant", ["addition", "extraction"])
def test_however_often_it_is_killed_it_comes_to_the_same(
    ledger: SqlLedger,
    store: SqliteStore,
    tiny: LoadedBackbone,
    begin: Begin,
    train: Callable[..., Job],
    variant: str,
) -> None:
    undisturbed = train(variant=variant, task="undisturbed")
    claim, job = begin(variant=variant, task="disturbed")
    step = Remembered()
    for epoch, after in ((1, False), (1, True), (2, False), (3, True)):
        dying = Killed(ledger.store)
        dying.epoch, dying.after = epoch, after
        with pytest.raises(Interrupted):
            training(dying, tiny, claim, ledger.get(job.id)).train(step)
    training(ledger, tiny, claim, ledger.get(job.id)).train(step)
    disturbed = ledger.get(job.id)
    assert list(step.results) == ["epoch 1", "epoch 2", "epoch 3", "finish"]
    assert measured(ledger, disturbed.id) == measured(ledger, undisturbed.id)
    assert learned(capsule_of(store, disturbed)) == learned(capsule_of(store, undisturbed))
    assert [one for one, _ in told(ledger, disturbed.id)].count("metrics") == 3


def test_a_resumed_run_begins_after_the_last_finished_epoch(
    ledger: SqlLedger, tiny: LoadedBackbone, begin: Begin
) -> None:
    claim, job = begin()
    dying = Killed(ledger.store)
    dying.epoch, dying.after = 2, True
    with pytest.raises(Interrupted):
        training(dying, tiny, claim, job).train(at_once)
    work = training(ledger, tiny, claim, ledger.get(job.id))
    assert len(work.training.reports) == work.kept == 2
    # A new run has no step behind it, and trains no epoch twice.
    before = [report.seconds for report in work.training.reports]
    work.train(at_once)
    assert [report.seconds for report in work.training.reports][:2] == before


def test_a_finished_job_that_was_not_registered_is_only_registered(
    ledger: SqlLedger, tiny: LoadedBackbone, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, job = begin()
    dying = Killed(ledger.store)
    dying.epoch, dying.after = 3, True
    with pytest.raises(Interrupted):
        training(dying, tiny, claim, job).train(at_once)
    work = training(ledger, tiny, claim, ledger.get(job.id))

    def never(self: Run, number: int) -> float:
        raise AssertionError(number)

    monkeypatch.setattr(Run, "train_epoch", never)
    work.train(at_once)
    assert ledger.get(job.id).status == "succeeded"


class Cancelling(SqlLedger):
    """A ledger in which a job is cancelled once it has come so far."""

    at = (2, 3)

    def progress(self, claim: Claim, progress: Progress) -> None:
        if (progress.epoch, progress.step) == self.at:
            self.cancel(claim.job)
        super().progress(claim, progress)


def test_a_cancel_is_heard_in_the_midst_of_an_epoch(
    ledger: SqlLedger, tiny: LoadedBackbone, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.worker.progress.TELL_EVERY_S", 0.0)
    claim, job = begin()
    with pytest.raises(ClaimVoid):
        training(Cancelling(ledger.store), tiny, claim, job).train(at_once)
    cancelled = ledger.get(job.id)
    assert (cancelled.status, len(cancelled.epochs)) == ("cancelled", 1)
    assert cancelled.progress is not None
    assert (cancelled.progress.epoch, cancelled.progress.step) == (2, 2)


def test_a_cancel_is_heard_while_it_is_validated_and_measured(
    ledger: SqlLedger, tiny: LoadedBackbone, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, job = begin(validation=VALIDATION)
    work = training(ledger, tiny, claim, job)
    work.epoch(1)
    monkeypatch.setattr("service.worker.progress.TELL_EVERY_S", 0.0)
    ledger.cancel(job.id)
    for measure in (work.training.validate, lambda: work.trained):
        with pytest.raises(ClaimVoid):
            measure()


def test_a_busy_ledger_costs_progress_and_no_epoch(
    ledger: SqlLedger, tiny: LoadedBackbone, begin: Begin
) -> None:
    class Busy(SqlLedger):
        def progress(self, claim: Claim, progress: Progress) -> None:
            raise StoreUnavailable("locked")

    claim, job = begin()
    with capture_logs() as logs:
        training(Busy(ledger.store), tiny, claim, job).train(at_once)
    assert ledger.get(job.id).status == "succeeded"
    assert "progress_not_noted" in {log["event"] for log in logs}


def test_an_epoch_that_could_not_be_kept_is_not_trained_again(
    ledger: SqlLedger, tiny: LoadedBackbone, begin: Begin
) -> None:
    class Full(SqlLedger):
        failures = 2

        def finish_epoch(self, claim: Claim, report: Mapping[str, Any], checkpoint: bytes) -> None:
            if self.failures:
                self.failures -= 1
                raise StoreUnavailable("disk full")
            super().finish_epoch(claim, report, checkpoint)

    claim, job = begin()
    work = training(Full(ledger.store), tiny, claim, job)
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            work.epoch(1)
    assert len(work.training.reports) == 1
    assert work.epoch(1) == work.training.reports[0].model_dump()
    assert len(ledger.get(job.id).epochs) == 1


class Moving(SqlLedger):
    """A ledger in which others register versions in the meantime."""

    others = 2

    def succeed(
        self,
        claim: Claim,
        version: NewVersion,
        activation: Activation,
        metrics: Mapping[str, float],
    ) -> VersionRecord:
        if self.others:
            self.others -= 1
            data = dump(parse_with_seed(version.content, self.others))
            self.store.add_version(version.task, digest(data), version.manifest, data, "upload")
        return super().succeed(claim, version, activation, metrics)


def parse_with_seed(content: bytes, seed: int) -> Capsule:
    """A capsule of the same shape that knows nothing."""
    capsule = parse(content)
    tensors = {name: tensor * 0 + seed for name, tensor in capsule.tensors.items()}
    return Capsule(manifest=capsule.manifest.model_copy(update={"golden": []}), tensors=tensors)


def test_it_is_decided_again_where_another_version_is_served_by_then(
    ledger: SqlLedger, tiny: LoadedBackbone, begin: Begin
) -> None:
    claim, job = begin(validation=VALIDATION)
    with capture_logs() as logs:
        training(Moving(ledger.store), tiny, claim, job).train(at_once)
    result = ledger.get(job.id).result
    assert result is not None
    assert (result.version, result.activated) == (3, True)
    assert "of version 2 on the same rows" in result.reason
    assert [log["event"] for log in logs].count("decided_again") == 2


def test_a_job_that_began_on_another_backbone_says_so(
    ledger: SqlLedger, tiny: LoadedBackbone, begin: Begin, tmp_path: Path
) -> None:
    claim, job = begin()
    training(ledger, tiny, claim, job).epoch(1)
    other = tiny_bert(tmp_path / "other", seed=1)
    with pytest.raises(TrainingError) as refused:
        training(ledger, other, claim, job)
    assert refused.value.code == TrainingFault.CHECKPOINT_MISMATCH
    assert "began on another backbone" in refused.value.message
    assert "checkpoint" not in refused.value.message


def test_a_damaged_checkpoint_is_no_crash(
    ledger: SqlLedger, tiny: LoadedBackbone, begin: Begin
) -> None:
    claim, job = begin()
    training(ledger, tiny, claim, job).epoch(1)
    with ledger.store.writing() as session:
        session.execute(update(CheckpointRow).values(content=b"decayed"))
    with pytest.raises(TrainingError, match="Submit it again"):
        training(ledger, tiny, claim, job)


def test_options_that_no_longer_fit_the_backbone_name_themselves(
    ledger: SqlLedger, tiny: LoadedBackbone, begin: Begin
) -> None:
    claim, job = begin(max_length=2048)
    with pytest.raises(OptionError) as refused:
        training(ledger, tiny, claim, job)
    assert refused.value.field == "max_length"


def test_errors_of_the_training_do_not_speak_of_files(
    ledger: SqlLedger, tiny: LoadedBackbone, begin: Begin
) -> None:
    claim, job = begin()
    work = training(ledger, tiny, claim, job)
    work.epoch(1)
    work.training.learner.load(
        {name: value * float("nan") for name, value in work.training.learner.named().items()}
    )
    with pytest.raises(TrainingError) as stopped:
        work.epoch(2)
    assert stopped.value.code == TrainingFault.DIVERGED
    assert stopped.value.message.endswith("in a job learning_rate) below 0.02.")


@pytest.mark.parametrize(("asked", "length"), [(None, 65), (40, 40)])
def test_the_length_is_the_most_that_the_backbone_takes(
    tiny: LoadedBackbone, begin: Begin, asked: int | None, length: int
) -> None:
    _, job = begin(max_length=asked)
    assert options(tiny, job.spec).max_length == length


def test_a_capsule_that_does_not_do_what_it_recorded_is_not_registered(
    ledger: SqlLedger, tiny: LoadedBackbone, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, job = begin()

    def spoilt(*arguments: Any, **more: Any) -> Capsule:
        capsule = finish(*arguments, **more)
        return Capsule(
            manifest=capsule.manifest,
            tensors=random_capsule(tiny.info, labels=2, scale=9.0).tensors,
        )

    monkeypatch.setattr("service.worker.training.finish", spoilt)
    with pytest.raises(Unprocessable) as refused:
        training(ledger, tiny, claim, job).train(at_once)
    assert refused.value.code == "golden_mismatch"
    assert ledger.served("tiny") is None


def test_a_capsule_without_golden_examples_has_nothing_to_prove(tiny: LoadedBackbone) -> None:
    prove(tiny, TorchExecutor(tiny.backbone), random_capsule(tiny.info))


def test_two_jobs_at_once_come_to_what_each_does_alone(
    ledger: SqlLedger,
    store: SqliteStore,
    tiny: LoadedBackbone,
    begin: Begin,
    train: Callable[..., Job],
) -> None:
    alone = [train(task=f"alone-{seed}", seed=seed) for seed in (1, 2)]
    begun = [begin(task=f"together-{seed}", seed=seed) for seed in (1, 2)]
    works = [training(ledger, tiny, claim, job) for claim, job in begun]
    threads = [threading.Thread(target=work.train, args=(at_once,)) for work in works]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)
    assert time.monotonic() - started < 30
    for expected, (_, job) in zip(alone, begun, strict=True):
        assert learned(capsule_of(store, ledger.get(job.id))) == learned(
            capsule_of(store, expected)
        )


def test_a_claim_that_was_void_from_the_start_does_no_harm(
    ledger: SqlLedger, tiny: LoadedBackbone, begin: Begin
) -> None:
    claim, job = begin()
    ledger.release_slot(TOKEN)
    with pytest.raises(ClaimVoid):
        training(ledger, tiny, claim, job).train(at_once)
    assert ledger.get(job.id).status == "queued"
