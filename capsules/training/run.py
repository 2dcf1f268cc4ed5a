"""One training run, an epoch at a time."""

import hashlib
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers.optimization import Adafactor, get_linear_schedule_with_warmup

from capsules.backbones.base import BackboneInfo, LoadedBackbone
from capsules.core import Encoding, TokenBatch
from capsules.data.base import Dataset
from capsules.errors import DataError, DataFault, OptionError, TrainingError, TrainingFault
from capsules.evaluation.runner import in_batches
from capsules.memory import is_out_of_memory, largest_that_fits
from capsules.model import pad
from capsules.template import Template
from capsules.training import checkpoint
from capsules.training.batches import length_bucketed
from capsules.training.checkpoint import Keeper
from capsules.training.config import DEFAULT_LEARNING_RATE, HEAD_RATE, TrainingConfig
from capsules.training.events import EpochReport, Silent, Watcher
from capsules.training.learner import Learner
from capsules.training.trainable import Trainable
from capsules.variants.registry import variant

DEFAULT_MAX_LENGTH: int = TrainingConfig.model_fields["max_length"].default


class Run:
    """Trains one capsule, or a linear head alone, with early stopping on validation accuracy.

    Float32 throughout, Adafactor without relative steps, linear schedule, cross-entropy; the
    backbone stays frozen and in evaluation mode. Each epoch depends only on the checkpoint before
    it, so that a run continued after a crash ends as one that was not disturbed.

    Attributes:
        reports: one for each finished epoch.
        seconds: wall-clock time of the epochs run, earlier processes' included.
    """

    def __init__(
        self,
        loaded: LoadedBackbone,
        config: TrainingConfig,
        train: Dataset,
        validation: Dataset,
        *,
        learner: Learner | None = None,
        keeper: Keeper | None = None,
        watcher: Watcher | None = None,
        heed: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare a run and take up its checkpoint where there is one.

        Args:
            loaded: the frozen backbone, in float32.
            config: the options.
            train: rows to learn from; its labels, in order, are the head's.
            validation: rows to choose the best epoch by.
            learner: what to train; None trains the capsule or linear head that the options ask
                for.
            keeper: keeps the state between epochs, such as a `FileKeeper`; None keeps none.
            watcher: follows the run.
            heed: is called between batches without gradients, such as those of validation, which
                the watcher is not told of; it may raise as the watcher may.

        Raises:
            DataError: the rows are all of one class, or validation has a label of its own.
            OptionError: the options do not fit the backbone.
            InputError: rows do not fit the template.
            TrainingError: the checkpoint is another run's.
        """
        train.require_classes()
        check_options(loaded, config, learner)
        self.loaded = loaded
        self.config = config
        self.train = train
        self.validation = validation
        self.labels = train.labels
        self.watcher = watcher or Silent()
        self.keeper = keeper
        self.heed = heed
        self.device = loaded.backbone.device
        self.learner = learner or Trainable(loaded, config, train.labels)
        self.train_rows = self.encode(train)
        self.train_targets = targets(train, train.labels)
        self.validation_rows = self.encode(validation)
        self.validation_targets = targets(validation, train.labels)
        self.learning_rate = config.learning_rate or DEFAULT_LEARNING_RATE[loaded.info.family]
        # The resolved rate counts, so that a new default does not go on from an old checkpoint.
        resolved = config.model_copy(update={"learning_rate": self.learning_rate})
        self.identity = identity(loaded, resolved, self.learner, train, validation)
        self.optimizer = Adafactor(
            self.parameter_groups(),
            lr=self.learning_rate,
            scale_parameter=False,
            relative_step=False,
            warmup_init=False,
        )
        steps = len(self.batches(1))
        self.schedule = get_linear_schedule_with_warmup(self.optimizer, 0, steps * config.epochs)
        self.reports: list[EpochReport] = []
        self.best = self.learner.snapshot()
        self.seconds = 0.0
        # Where nothing before the head is learned, features never change.
        fixed = self.learner.fixed_features
        self.fixed_train = self.features(self.train_rows) if fixed else None
        self.fixed_validation = self.features(self.validation_rows) if fixed else None
        self.resume()

    def parameter_groups(self) -> list[dict[str, Any]]:
        """The learned tensors with their learning rates."""
        groups: list[dict[str, Any]] = []
        for rate, is_head in ((1.0, False), (HEAD_RATE, True)):
            chosen = [
                parameter
                for name, parameter in self.learner.named().items()
                if name.startswith("head.") == is_head
            ]
            if chosen:
                groups.append({"params": chosen, "lr": self.learning_rate * rate})
        return groups

    @property
    def best_epoch(self) -> int:
        """The epoch whose tensors are kept, from 1; 0 before the first has finished."""
        return max((report.epoch for report in self.reports if report.best), default=0)

    @property
    def finished(self) -> bool:
        """Whether the last epoch was run or patience is exhausted."""
        done = len(self.reports)
        return done >= self.config.epochs or done - self.best_epoch >= self.config.patience > 0

    def encode(self, dataset: Dataset) -> list[Encoding]:
        """Tokenise rows, leaving room for the capsule."""
        template = Template(self.config.template)
        texts = [template.render(example.inputs) for example in dataset]
        return self.loaded.tokeniser.encode(texts, self.config.max_length - self.learner.slots)

    def batches(self, epoch: int) -> list[list[int]]:
        """The rows of each step of an epoch."""
        lengths = [len(encoding.input_ids) for encoding in self.train_rows]
        return length_bucketed(lengths, self.config.batch_size, seed=self.config.seed, epoch=epoch)

    def resume(self) -> None:
        """Take up the checkpoint, if there is one."""
        if self.keeper is None:
            return
        found = checkpoint.load(self.keeper, self.identity)
        if found is None:
            return
        self.learner.load(found.tensors)
        self.optimizer.load_state_dict(dict(found.optimizer))
        self.schedule.load_state_dict(dict(found.schedule))
        self.best = dict(found.best)
        self.reports = [EpochReport.model_validate(report) for report in found.reports]
        self.seconds = found.seconds

    def run(self) -> None:
        """Train until finished.

        Raises:
            TrainingError: the loss is no longer a number, or a checkpoint cannot be kept.
        """
        while not self.finished:
            self.epoch()

    def epoch(self) -> EpochReport:
        """Train one epoch, validate, and keep the checkpoint.

        Raises:
            TrainingError: the loss is no longer a number, or the checkpoint cannot be kept.
        """
        started = time.monotonic()
        number = len(self.reports) + 1
        train_loss = self.train_epoch(number)
        accuracy, loss = self.validate()
        if not math.isfinite(loss):
            raise self.diverged(loss, f"on the validation rows after epoch {number}")
        best = self.improves(accuracy, loss)
        seconds = time.monotonic() - started
        report = EpochReport(
            epoch=number,
            train_loss=train_loss,
            validation_loss=loss,
            validation_accuracy=accuracy,
            best=best,
            seconds=seconds,
        )
        if best:
            self.best = self.learner.snapshot()
        self.reports.append(report)
        self.seconds += seconds
        self.save()
        self.watcher.epoch(report)
        return report

    def improves(self, accuracy: float, loss: float) -> bool:
        """Whether an epoch beats the best so far: more right, or as many with a lower loss."""
        if self.best_epoch == 0:
            return True
        best = self.reports[self.best_epoch - 1]
        return (accuracy, -loss) > (best.validation_accuracy, -best.validation_loss)

    def save(self) -> None:
        """Keep the checkpoint, where one is wanted."""
        if self.keeper is None:
            return
        state = checkpoint.Checkpoint(
            identity=self.identity,
            epoch=len(self.reports),
            tensors=self.learner.snapshot(),
            optimizer=self.optimizer.state_dict(),
            schedule=self.schedule.state_dict(),
            best=self.best,
            reports=[report.model_dump() for report in self.reports],
            seconds=self.seconds,
        )
        checkpoint.save(state, self.keeper)

    def train_epoch(self, number: int) -> float:
        """One pass over the training rows; returns the mean loss."""
        batches = self.batches(number)
        total = 0.0
        for step, rows in enumerate(batches, start=1):
            value = self.step(rows)
            if not math.isfinite(value):
                raise self.diverged(value, f"at step {step} of epoch {number}")
            self.optimizer.step()
            self.schedule.step()
            self.optimizer.zero_grad()
            total += value * len(rows)
            self.watcher.step(number, step, len(batches), value)
        return total / len(self.train_rows)

    def step(self, rows: Sequence[int]) -> float:
        """The mean loss of training rows, whose gradients are added to the learned tensors'.

        Raises:
            TrainingError: there is not enough memory for so many rows.
        """
        try:
            loss = functional.cross_entropy(
                self.logits(rows), self.train_targets[rows].to(self.device)
            )
            loss.backward()
            return loss.item()
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        # Only here is the failed step's memory free again.
        raise self.too_large(len(rows))

    def too_large(self, rows: int) -> TrainingError:
        """The error for a batch that does not fit into memory, with the size that would."""
        longest = sorted(
            range(len(self.train_rows)), key=lambda row: -len(self.train_rows[row].input_ids)
        )
        fitting = largest_that_fits(lambda size: self.logits(longest[:size]).sum().backward(), rows)
        self.optimizer.zero_grad()
        remedy = (
            f"batch_size {fitting} would fit"
            if fitting
            else "not even one would fit, so lower max_length"
        )
        return TrainingError(
            f"There is not enough memory for a batch of {rows} rows; {remedy}.{self.afresh()}",
            code=TrainingFault.OUT_OF_MEMORY,
            field="batch_size" if fitting else "max_length",
        )

    def diverged(self, loss: float, where: str) -> TrainingError:
        """The error for a loss that is no longer a number."""
        return TrainingError(
            f"The loss is {loss} {where}; lower the learning rate (--learning-rate, in a job "
            f"learning_rate) below {self.learning_rate}.{self.afresh()}",
            code=TrainingFault.DIVERGED,
            field="learning_rate",
        )

    def afresh(self) -> str:
        """What has to go, as a sentence, before a run with other options."""
        if self.keeper is None or not self.reports or not self.keeper.to_change:
            return ""
        return f" {self.keeper.to_change}"

    def logits(self, rows: Sequence[int]) -> Tensor:
        """[B, L] scores of training rows, under autograd."""
        if self.fixed_train is not None:
            return self.learner.score(self.fixed_train[rows])
        tokens = pad([self.train_rows[row] for row in rows], self.loaded.tokeniser.pad_id)
        scores: Tensor = self.learner(tokens.to(self.device))
        return scores

    def features(self, rows: Sequence[Encoding]) -> Tensor:
        """What the learner scores, row by row, without autograd."""
        return self.each(rows, self.learner.features)

    def scores(self, rows: Sequence[Encoding]) -> Tensor:
        """[n, L] scores of any rows, without autograd."""
        return self.each(rows, self.learner)

    def each(self, rows: Sequence[Encoding], forward: Callable[[TokenBatch], Tensor]) -> Tensor:
        """What something gives for any rows, without autograd.

        Raises:
            TrainingError: there is not enough memory for one of them.
        """
        try:
            with torch.no_grad():
                return in_batches(
                    rows,
                    forward,
                    pad_id=self.loaded.tokeniser.pad_id,
                    device=self.device,
                    progress=self.between,
                )
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            raise TrainingError(
                f"There is not enough memory for even one row; lower max_length.{self.afresh()}",
                code=TrainingFault.OUT_OF_MEMORY,
                field="max_length",
            ) from error

    def between(self, done: int, total: int) -> None:
        """Let whoever asked for it interrupt between two batches."""
        self.heed()

    def validate(self) -> tuple[float, float]:
        """Accuracy and mean cross-entropy on the validation rows."""
        with torch.no_grad():
            if self.fixed_validation is not None:
                logits = self.learner.score(self.fixed_validation)
            else:
                logits = self.scores(self.validation_rows)
            expected = self.validation_targets.to(self.device)
            loss = functional.cross_entropy(logits, expected)
            right = int((logits.argmax(dim=1) == expected).sum())
        return right / len(expected), loss.item()

    def predict(self, dataset: Dataset) -> list[str]:
        """The labels that the best epoch's tensors give to rows."""
        present = self.learner.snapshot()
        self.learner.load(self.best)
        winners = self.scores(self.encode(dataset)).argmax(dim=1)
        self.learner.load(present)
        return [self.labels[winner] for winner in winners.tolist()]


def targets(dataset: Dataset, labels: Sequence[str]) -> Tensor:
    """[n] int64 positions of the rows' labels.

    Raises:
        DataError: a row has another label.
    """
    positions = {label: position for position, label in enumerate(labels)}
    for example in dataset:
        if example.label not in positions:
            raise DataError(
                f"The validation rows have the label {example.label!r}, which no training row has; "
                "leave these rows out or add it to the training rows.",
                code=DataFault.UNKNOWN_LABEL,
                field="labels",
            )
    return torch.tensor([positions[example.label] for example in dataset])


def check_options(loaded: LoadedBackbone, config: TrainingConfig, learner: Learner | None) -> None:
    """Refuse options that this backbone cannot be trained with.

    Raises:
        OptionError: naming the option.
    """
    if loaded.backbone.dtype != torch.float32:
        raise OptionError("Capsules are trained in float32; load the backbone so.", field="dtype")
    if learner is not None:
        slots = learner.slots
    else:
        slots = 0 if config.variant is None else variant(config.variant).slots(config.length)
    check_max_length(loaded, config.max_length, slots)


def check_max_length(loaded: LoadedBackbone, max_length: int, slots: int) -> None:
    """Refuse a length that is too much for a backbone, or leaves no room for text.

    Args:
        loaded: the frozen backbone, in any dtype.
        max_length: in tokens, the capsule's included.
        slots: tokens of the capsule.

    Raises:
        OptionError: it is one or the other.
    """
    longest = loaded.info.max_tokens + slots
    if max_length > longest:
        raise OptionError(
            f"max_length {max_length} is more than this backbone takes with {slots} capsule "
            f"token(s): {longest}.",
            field="max_length",
        )
    if max_length - slots <= loaded.tokeniser.special_tokens:
        raise OptionError(
            f"max_length {max_length} leaves no room for text beside {slots} capsule "
            f"token(s) and {loaded.tokeniser.special_tokens} special tokens; raise it.",
            field="max_length",
        )


def usual_max_length(info: BackboneInfo, name: str, length: int) -> int:
    """The `max_length` of a run that asks for none: the usual, or what the backbone takes.

    Args:
        info: of the backbone.
        name: of the variant.
        length: capsule tokens per layer.
    """
    return min(DEFAULT_MAX_LENGTH, info.max_tokens + variant(name).slots(length))


def identity(
    loaded: LoadedBackbone,
    config: TrainingConfig,
    learner: Learner,
    train: Dataset,
    validation: Dataset,
) -> str:
    """Digest of what decides a run's outcome."""
    parts = (
        loaded.info.fingerprint,
        config.model_dump_json(),
        learner.identity,
        train.digest,
        validation.digest,
        "\0".join(train.labels),
    )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
