"""Trains a method on a set with a seed, at the best of its learning rates, and measures it."""

import time
from dataclasses import dataclass
from datetime import UTC, datetime

from capsules.artefact.file import dump
from capsules.backbones.base import BackboneInfo, LoadedBackbone
from capsules.baselines.registry import builder
from capsules.data.base import Dataset
from capsules.errors import TrainingError, TrainingFault
from capsules.evaluation.metrics import Report
from capsules.reproduce.journal import Journal, run_name
from capsules.reproduce.machine import describe, peak_memory_mib, watch_memory
from capsules.reproduce.method import Method
from capsules.reproduce.metric import score
from capsules.reproduce.observer import Observer
from capsules.reproduce.record import Candidate, Key, Measured, Row, Settings, identity
from capsules.reproduce.splits import Source, Splits
from capsules.reproduce.task import Task
from capsules.training.checkpoint import FileKeeper
from capsules.training.config import TrainingConfig
from capsules.training.finish import finish
from capsules.training.run import Run
from capsules.variants.registry import variant

# Digits kept of seconds.
DIGITS = 2


@dataclass(frozen=True, slots=True)
class Experiment:
    """One cell of the comparison.

    Attributes:
        source: the set's rows.
        method: what is trained.
        seed: of split, start and order.
        rates: learning rates to choose from.
    """

    source: Source
    method: Method
    seed: int
    rates: tuple[float, ...]

    @property
    def task(self) -> Task:
        """The set."""
        return self.source.task

    @property
    def key(self) -> Key:
        """What the run is of."""
        return self.task.name, self.method.name, self.seed

    def identity(self, journal: Journal, splits: Splits) -> str:
        """Digest of everything that decides the outcome."""
        return identity(
            {
                "backbone": journal.configuration.backbone.fingerprint,
                "settings": journal.configuration.settings.model_dump(mode="json"),
                "template": self.task.template,
                "metric": self.task.metric,
                "rows": splits.digest,
                "method": self.method.name,
                "seed": self.seed,
                "rates": list(self.rates),
            }
        )


@dataclass(frozen=True, slots=True)
class Trained:
    """A finished run at one learning rate.

    Attributes:
        run: the run.
        seconds: spent preparing and training it.
        validation: how good it is on the rows it is chosen by.
    """

    run: Run
    seconds: float
    validation: Measured

    @property
    def rank(self) -> tuple[float, float]:
        """What the best learning rate has most of: the score, then the lowest loss."""
        best = self.run.reports[self.run.best_epoch - 1]
        return self.validation.score, -best.validation_loss


def conduct(
    experiment: Experiment, loaded: LoadedBackbone, journal: Journal, observer: Observer
) -> Row:
    """Make a run and keep it; one that was interrupted goes on from its checkpoints.

    Raises:
        DataError: the rows cannot be divided.
        OptionError: the method does not fit the backbone.
        TrainingError: training failed at every learning rate, or nothing can be written.
    """
    splits = experiment.source.splits(experiment.seed)
    device = loaded.backbone.device
    watch_memory(device)
    best, candidates = search(experiment, loaded, splits, journal, observer)
    run = best.run
    test = measure(run, splits.test, experiment.task)
    if experiment.method.variant is not None:
        metrics = {"test_score": test.score, "test_accuracy": test.accuracy}
        capsule = finish(run, test_rows=len(splits.test), metrics=metrics)
        journal.keep_capsule(experiment.key, dump(capsule))
    row = Row(
        identity=experiment.identity(journal, splits),
        task=experiment.task.name,
        method=experiment.method.name,
        seed=experiment.seed,
        metric=experiment.task.metric,
        configuration=journal.configuration,
        candidates=candidates,
        learning_rate=run.learning_rate,
        trainable_parameters=sum(tensor.numel() for tensor in run.best.values()),
        best_epoch=run.best_epoch,
        epochs=len(run.reports),
        train_rows=len(splits.train),
        validation=best.validation,
        test=test,
        seconds=best.seconds,
        peak_memory_mib=peak_memory_mib(device),
        note=experiment.source.note,
        recorded_at=datetime.now(UTC).replace(microsecond=0),
        machine=describe(device),
    )
    journal.add(row)
    for rate in experiment.rates:
        journal.checkpoint(experiment.key, rate).unlink(missing_ok=True)
    return row


def search(
    experiment: Experiment,
    loaded: LoadedBackbone,
    splits: Splits,
    journal: Journal,
    observer: Observer,
) -> tuple[Trained, tuple[Candidate, ...]]:
    """The run at the best learning rate, and what each of them reached.

    Raises:
        TrainingError: training failed at every one.
    """
    best: Trained | None = None
    candidates: list[Candidate] = []
    for rate in experiment.rates:
        started = time.monotonic()
        run = prepare(experiment, rate, loaded, splits, journal, observer)
        # A linear head's features are all computed here, so preparing counts.
        preparing = time.monotonic() - started
        validation, failure = None, None
        try:
            run.run()
        except TrainingError as error:
            if error.code != TrainingFault.DIVERGED:
                raise
            failure = error.message
        else:
            validation = measure(run, splits.validation, experiment.task)
        seconds = round(preparing + run.seconds, DIGITS)
        if validation is not None:
            trained = Trained(run, seconds, validation)
            best = trained if best is None or trained.rank > best.rank else best
        candidates.append(
            Candidate(learning_rate=rate, validation=validation, seconds=seconds, failure=failure)
        )
    if best is None:
        raise TrainingError(
            f"{run_name(experiment.key)}: {candidates[-1].failure}",
            code=TrainingFault.DIVERGED,
            field="learning_rates",
        )
    return best, tuple(candidates)


def prepare(
    experiment: Experiment,
    rate: float,
    loaded: LoadedBackbone,
    splits: Splits,
    journal: Journal,
    observer: Observer,
) -> Run:
    """A run at one learning rate, as far as it came before.

    Raises:
        OptionError: the method does not fit the backbone.
    """
    method, settings = experiment.method, journal.configuration.settings
    learner = None
    if method.baseline:
        learner = builder(method.name)(loaded, splits.train.labels, experiment.seed)
    config = TrainingConfig(
        task=experiment.task.name,
        description=f"{method.name}, seed {experiment.seed}",
        template=experiment.task.template,
        variant=method.variant,
        length=settings.length,
        layers=settings.layers,
        epochs=settings.epochs,
        patience=settings.patience,
        batch_size=settings.batch_size,
        learning_rate=rate,
        max_length=longest(method, settings, loaded.info),
        seed=experiment.seed,
    )
    return Run(
        loaded,
        config,
        splits.train,
        splits.validation,
        learner=learner,
        keeper=FileKeeper(journal.checkpoint(experiment.key, rate)),
        watcher=observer.watch(run_name(experiment.key), rate),
    )


def longest(method: Method, settings: Settings, info: BackboneInfo) -> int:
    """Longest sequence for a backbone that may take less text than was asked for.

    Capsules take no position of the backbone's; what baselines put in front of a text does.
    """
    free = 0 if method.variant is None else variant(method.variant).slots(settings.length)
    return min(settings.max_length, info.max_tokens + free)


def measure(run: Run, rows: Dataset, task: Task) -> Measured:
    """How good the best epoch's answers to rows are."""
    truth = [example.label for example in rows]
    report = Report.from_labels(truth, run.predict(rows), labels=run.labels)
    return Measured(
        score=score(task.metric, report),
        accuracy=report.accuracy,
        macro_f1=report.macro_f1,
        rows=len(rows),
    )
