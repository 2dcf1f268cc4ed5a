"""Trains the shipped capsules and the linear heads they are compared with."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict

from capsules.artefact.file import digest, dump
from capsules.backbones.base import LoadedBackbone
from capsules.data.base import Dataset
from capsules.data.reader import load as load_dataset
from capsules.evaluation.metrics import Report
from capsules.training.checkpoint import FileKeeper
from capsules.training.events import Watcher
from capsules.training.finish import finish
from capsules.training.run import Run
from capsules.zoo.recipe import Recipe

Kind = Literal["capsule", "head"]
SPLITS = ("train", "validation", "test")


class Measured(BaseModel):
    """How one run did."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    validation_accuracy: float
    test_accuracy: float
    test_macro_f1: float
    best_epoch: int
    epochs: int
    seconds: float


class Result(BaseModel):
    """A capsule beside a linear head on the same backbone, data, order and code."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: str
    seed: int
    labels: int
    rows: dict[str, int]
    learning_rate: float
    capsule: Measured
    linear_head: Measured
    digest: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Places:
    """Where things are read from and written to.

    Attributes:
        data: holds a folder a task with train, validation and test files.
        work: checkpoints, which let an interrupted build go on.
        results: one JSON file a run.
        artefacts: the capsules that ship.
    """

    data: Path
    work: Path
    results: Path
    artefacts: Path

    def result(self, recipe: Recipe, seed: int) -> Path:
        """The file of one run's result."""
        return self.results / f"{recipe.task}-{seed}.json"

    def checkpoint(self, recipe: Recipe, seed: int, kind: Kind) -> Path:
        """The file that an unfinished run goes on from."""
        return self.work / f"{recipe.task}-{seed}-{kind}.pt"

    def checkpoints(self, recipe: Recipe, seed: int) -> list[Path]:
        """Those of the capsule and of the linear head beside it."""
        return [self.checkpoint(recipe, seed, kind) for kind in get_args(Kind)]


def build(
    loaded: LoadedBackbone, recipe: Recipe, seed: int, places: Places, watcher: Watcher
) -> Result:
    """Train and measure one capsule and its linear head; goes on where it was interrupted.

    Raises:
        DataError: the data are missing or malformed.
        TrainingError: training failed.
    """
    train, validation, test = read_splits(places.data / recipe.task)
    head = measure(loaded, recipe, seed, (train, validation, test), places, watcher, capsule=False)
    run, measured = measure(
        loaded, recipe, seed, (train, validation, test), places, watcher, capsule=True
    )
    artefact = dump(
        finish(
            run,
            test_rows=len(test),
            metrics={
                "test_accuracy": measured.test_accuracy,
                "test_macro_f1": measured.test_macro_f1,
            },
        )
    )
    result = Result(
        task=recipe.task,
        seed=seed,
        labels=len(train.labels),
        rows={"train": len(train), "validation": len(validation), "test": len(test)},
        learning_rate=run.learning_rate,
        capsule=measured,
        linear_head=head[1],
        digest=digest(artefact),
        bytes=len(artefact),
    )
    if seed == recipe.seeds[0]:
        places.artefacts.mkdir(parents=True, exist_ok=True)
        (places.artefacts / f"{recipe.task}.safetensors").write_bytes(artefact)
    places.results.mkdir(parents=True, exist_ok=True)
    places.result(recipe, seed).write_text(result.model_dump_json(indent=2) + "\n")
    return result


def measure(
    loaded: LoadedBackbone,
    recipe: Recipe,
    seed: int,
    splits: tuple[Dataset, Dataset, Dataset],
    places: Places,
    watcher: Watcher,
    *,
    capsule: bool,
) -> tuple[Run, Measured]:
    """Train one run and measure its best epoch on the test rows."""
    train, validation, test = splits
    kind: Kind = "capsule" if capsule else "head"
    run = Run(
        loaded,
        recipe.config(seed, capsule=capsule),
        train,
        validation,
        keeper=FileKeeper(places.checkpoint(recipe, seed, kind)),
        watcher=watcher,
    )
    run.run()
    report = Report.from_labels(
        [example.label for example in test], run.predict(test), labels=run.labels
    )
    best = run.reports[run.best_epoch - 1]
    return run, Measured(
        validation_accuracy=best.validation_accuracy,
        test_accuracy=report.accuracy,
        test_macro_f1=report.macro_f1,
        best_epoch=run.best_epoch,
        epochs=len(run.reports),
        seconds=round(run.seconds, 1),
    )


def read_splits(folder: Path) -> tuple[Dataset, Dataset, Dataset]:
    """Train, validation and test rows, all under the labels of the training rows."""
    train = load_dataset(folder / "train.jsonl.gz", fields=("text",))
    validation, test = (
        load_dataset(folder / f"{split}.jsonl.gz", fields=("text",), labels=train.labels)
        for split in SPLITS[1:]
    )
    return train, validation, test
