"""One job: its epochs, and the version that comes of them."""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import structlog

from capsules.artefact.file import Capsule, digest, dump, parse
from capsules.artefact.manifest import Manifest
from capsules.backbones.base import LoadedBackbone
from capsules.data.base import Dataset
from capsules.errors import TrainingError, TrainingFault
from capsules.evaluation.runner import predict
from capsules.executors.base import Executor
from capsules.training.config import TrainingConfig
from capsules.training.finish import draft, finish
from capsules.training.run import Run, usual_max_length
from service.engine.records import RowAnswer
from service.jobs.ledger import DefaultMoved, Ledger
from service.jobs.records import Activation, Claim, Job, NewVersion, Progress, Split
from service.jobs.spec import JobSpec
from service.registry.proof import check
from service.store.base import Store, VersionRecord
from service.store.errors import StoreError
from service.worker.activation import Standing, decide, needs_comparison
from service.worker.evaluation import Evaluation
from service.worker.keeper import Held
from service.worker.progress import Reporter
from service.worker.rows import Rows, read_rows
from service.worker.served import Yardstick
from service.worker.workflows import Step

logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Trained:
    """What came of the epochs.

    Attributes:
        version: the capsule, to be registered.
        score: on the validation rows, by the job's metric.
        metrics: by name, for people.
    """

    version: NewVersion
    score: float
    metrics: dict[str, float]


class Training:
    """One job in this process, taken up where its checkpoint left off.

    Args:
        ledger: keeps what is done.
        store: has the version that is served.
        loaded: the backbone, in float32.
        executor: runs it.
        claim: on the job.
        job: what to do.

    Raises:
        CapsuleError: rows, options, backbone and checkpoint do not fit each other.
        Unprocessable: `rows_damaged`.
    """

    def __init__(
        self,
        ledger: Ledger,
        store: Store,
        loaded: LoadedBackbone,
        executor: Executor,
        claim: Claim,
        job: Job,
    ) -> None:
        self.ledger = ledger
        self.loaded = loaded
        self.executor = executor
        self.claim = claim
        self.spec = job.spec
        self.rows = read_rows(ledger, job)
        self.config = options(loaded, job.spec)
        self.keeper = Held(ledger.checkpoint(job.id))
        self.reporter = Reporter(
            self.tell,
            self.config.epochs,
            past=[report["seconds"] for report in job.epochs],
        )
        self.training = prepare(loaded, self.config, self.rows, self.keeper, self.reporter)
        self.kept = len(self.training.reports)
        self.yardstick = Yardstick(
            store,
            loaded,
            executor,
            self.rows.validation,
            job.spec.metric,
            self.reporter.pulse,
        )

    def tell(self, progress: Progress) -> None:
        """Note how far it has come, unless the ledger is busy: that is worth no epoch.

        Raises:
            ClaimVoid: stop.
        """
        try:
            self.ledger.progress(self.claim, progress)
        except StoreError as error:
            logger.warning("progress_not_noted", reason=str(error))

    def train(self, step: Step) -> None:
        """Train what is left of the epochs, and register what comes of them.

        The steps are the same ones in the same order, however often this is interrupted.

        Raises:
            ClaimVoid: the job is this worker's no longer.
            CapsuleError: the training cannot go on.
            StoreUnavailable: what was done could not be kept for a minute.
        """
        epoch = 0
        while epoch < len(self.training.reports) or not self.training.finished:
            epoch += 1
            step(f"epoch {epoch}", partial(self.epoch, epoch))
        step("finish", self.finish)

    def epoch(self, number: int) -> dict[str, Any]:
        """Train an epoch, unless that is done, and keep it, unless it is kept.

        Returns:
            Its report.
        """
        if number > len(self.training.reports):
            self.reporter.begin()
            self.training.epoch()
        report = self.training.reports[number - 1].model_dump()
        if number > self.kept:
            assert self.keeper.data is not None, "an epoch ends with a checkpoint"
            self.ledger.finish_epoch(self.claim, report, self.keeper.data)
            self.kept = number
        return report

    def finish(self) -> dict[str, Any]:
        """Register the version of the best epoch; whether it is served is decided as it is.

        Returns:
            Its number.
        """
        while True:
            try:
                return {"version": self.register(self.trained, self.decision()).version}
            except DefaultMoved as moved:
                logger.info("decided_again", reason=str(moved))

    def register(self, trained: Trained, decision: Activation) -> VersionRecord:
        """Register the version, which ends the job.

        Raises:
            DefaultMoved: another version is served than the decision was made against.
        """
        return self.ledger.succeed(self.claim, trained.version, decision, trained.metrics)

    def decision(self) -> Activation:
        """Whether the new version is to be served.

        Raises:
            DefaultMoved: the served one was deleted meanwhile.
        """
        trained = self.trained
        version = self.ledger.served(self.spec.task)
        served = None if version is None else Standing(version)
        if version is not None and needs_comparison(self.spec):
            served = self.yardstick.measure(self.spec.task, version)
        return decide(self.spec, trained.score, served)

    @cached_property
    def trained(self) -> Trained:
        """The version of the best epoch, measured and proven; made once."""
        rough = Capsule(
            manifest=draft(self.loaded, self.config, self.training.labels),
            tensors=self.training.best,
        )
        evaluations: dict[Split, Evaluation] = {
            "validation": self.evaluate(rough, self.rows.validation)
        }
        if self.rows.test is not None:
            evaluations["test"] = self.evaluate(rough, self.rows.test)
        measured = {
            f"{name}_{metric}": value
            for name, one in evaluations.items()
            for metric, value in (
                ("accuracy", one.scores.accuracy),
                ("macro_f1", one.scores.macro_f1),
            )
        }
        capsule = finish(self.training, test_rows=len(self.rows.test or ()), metrics=measured)
        data = dump(capsule)
        prove(self.loaded, self.executor, parse(data))
        # The last is the one on rows that nothing was chosen by.
        shown, evaluation = list(evaluations.items())[-1]
        return Trained(
            version=NewVersion(
                task=self.spec.task,
                digest=digest(data),
                manifest=capsule.manifest.model_dump(mode="json"),
                content=data,
                evaluation=evaluation.document(shown),
            ),
            score=evaluations["validation"].score(self.spec.metric),
            metrics=recorded(capsule.manifest),
        )

    def evaluate(self, capsule: Capsule, rows: Dataset) -> Evaluation:
        """How a capsule does on rows.

        Raises:
            ClaimVoid: the job was cancelled meanwhile.
        """
        answers = predict(
            self.loaded,
            self.executor,
            capsule,
            [row.inputs for row in rows],
            progress=lambda *_: self.reporter.pulse(),
        )
        return Evaluation.of(
            [row.label for row in rows],
            [answer.label for answer in answers],
            labels=capsule.manifest.labels,
        )


def options(loaded: LoadedBackbone, spec: JobSpec) -> TrainingConfig:
    """A job's options on this backbone, whose length is the default where none was asked for."""
    return spec.config(usual_max_length(loaded.info, spec.variant, spec.length))


def prepare(
    loaded: LoadedBackbone,
    config: TrainingConfig,
    rows: Rows,
    keeper: Held,
    reporter: Reporter,
) -> Run:
    """The run, with the epochs that are kept behind it.

    Raises:
        CapsuleError: rows, options, backbone and checkpoint do not fit each other.
    """
    try:
        return Run(
            loaded,
            config,
            rows.train,
            rows.validation,
            keeper=keeper,
            watcher=reporter,
            heed=reporter.pulse,
        )
    # Raised for a checkpoint alone.
    except TrainingError as error:
        raise TrainingError(
            "The job began on another backbone or under another release, and cannot go on after "
            "its last finished epoch here. Submit it again; or have the server started with what "
            "it began on, then resume it.",
            code=TrainingFault.CHECKPOINT_MISMATCH,
        ) from error


def prove(loaded: LoadedBackbone, executor: Executor, capsule: Capsule) -> None:
    """Replay a capsule's golden examples, recorded one by one, in one batch.

    Raises:
        Unprocessable: `golden_mismatch`.
    """
    golden, labels = capsule.manifest.golden, capsule.manifest.labels
    answers = predict(loaded, executor, capsule, [example.inputs for example in golden])
    for index, (example, answer) in enumerate(zip(golden, answers, strict=True)):
        check(index, example, RowAnswer(answer.probs, 0, truncated=False), labels)


def recorded(manifest: Manifest) -> dict[str, float]:
    """The measurements in a manifest."""
    assert manifest.training is not None, "a finished capsule has them"
    return dict(manifest.training.metrics)
