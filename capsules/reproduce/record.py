"""What is kept of a finished run, and what decides its outcome."""

import hashlib
import json
from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, JsonValue

from capsules.artefact.manifest import NamedOrNumbered
from capsules.backbones.base import Family
from capsules.layers import NamedLayers
from capsules.reproduce.machine import Machine
from capsules.reproduce.metric import Metric

Key = tuple[str, str, int]
"""What a run is of: set, method, seed."""


class Record(BaseModel):
    """Frozen, and strict about unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Settings(Record):
    """The options that all runs of a comparison share.

    Attributes:
        epochs: at most this many.
        patience: stop after this many epochs without a better validation accuracy.
        batch_size: rows a step.
        length: capsule tokens per layer.
        layers: which layers capsules enter; numbers count from 1.
        max_length: longest sequence in tokens, what a method adds included.
    """

    epochs: int = Field(default=50, ge=1, le=1000)
    patience: int = Field(default=5, ge=1)
    batch_size: int = Field(default=32, ge=1, le=4096)
    length: int = Field(default=1, ge=1, le=512)
    layers: Annotated[NamedLayers | tuple[int, ...], NamedOrNumbered] = "all"
    max_length: int = Field(default=512, ge=4)


class Frozen(Record):
    """The backbone that every method is trained on.

    Attributes:
        id: name a person knows it by.
        specification: what was asked for, such as `embedded` or a folder.
        family: what reads the result.
        architecture: the model type of its configuration.
        parameters: how many weights it has.
        fingerprint: hex sha256 of weights, tokenizer and configuration.
    """

    id: str
    specification: str
    family: Family
    architecture: str
    parameters: int
    fingerprint: str


class Configuration(Record):
    """What all runs in one folder share."""

    backbone: Frozen
    settings: Settings


class Measured(Record):
    """How good the answers to one set of rows are.

    Attributes:
        score: by the set's metric; what methods are compared by.
        accuracy: share of the rows that are right.
        macro_f1: mean F1 over the labels.
        rows: how many there were.
    """

    score: FiniteFloat
    accuracy: FiniteFloat
    macro_f1: FiniteFloat
    rows: int


class Candidate(Record):
    """One learning rate that was tried.

    Attributes:
        learning_rate: the rate.
        validation: what it reached; None where the run failed.
        seconds: spent training, failed runs included.
        failure: why there is nothing to compare.
    """

    learning_rate: float
    validation: Measured | None
    seconds: float
    failure: str | None = None


class Row(Record):
    """One finished run: a method on a set with a seed, at the best of its learning rates.

    Attributes:
        identity: digest of everything that decides the outcome.
        task: the set.
        method: what was trained.
        seed: of split, start and order.
        metric: what `score` is.
        configuration: what the run shares with the others of its folder.
        candidates: the learning rates tried, in order.
        learning_rate: the one with the best validation score.
        trainable_parameters: learned numbers, heads included.
        best_epoch: the one that is measured, from 1.
        epochs: run before it stopped.
        train_rows: rows learned from.
        validation: on the rows that epoch and rate were chosen by.
        test: on rows that nothing was chosen by.
        seconds: of training at that rate, validation included.
        peak_memory_mib: on CUDA the run's peak of allocated memory; elsewhere the process's peak
            until then, which earlier runs may have set.
        note: what makes it different from published figures.
        recorded_at: when it was finished.
        machine: where.
    """

    identity: str
    task: str
    method: str
    seed: int
    metric: Metric
    configuration: Configuration
    candidates: tuple[Candidate, ...]
    learning_rate: float
    trainable_parameters: int
    best_epoch: int
    epochs: int
    train_rows: int
    validation: Measured
    test: Measured
    seconds: float
    peak_memory_mib: float
    note: str | None
    recorded_at: datetime
    machine: Machine

    @property
    def key(self) -> Key:
        """What the run is of: set, method, seed."""
        return self.task, self.method, self.seed

    @property
    def rates(self) -> tuple[float, ...]:
        """The learning rates that were chosen from."""
        return tuple(one.learning_rate for one in self.candidates)

    @property
    def search_seconds(self) -> float:
        """Spent training at all rates together."""
        return sum(one.seconds for one in self.candidates)


class Skip(Record):
    """What could not be run, and why.

    Attributes:
        task: the set.
        method: what was to be trained; None where no method could be.
        seed: likewise.
        reason: for a person, with the remedy.
    """

    task: str
    method: str | None
    seed: int | None
    reason: str


def identity(parts: JsonValue) -> str:
    """Hex sha256 of canonical JSON."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
