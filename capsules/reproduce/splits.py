"""The rows of a set: read whole or not at all, and divided as the protocol says."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from capsules.data import jsonl
from capsules.data.base import Dataset
from capsules.data.limits import Limits
from capsules.data.lines import Lines
from capsules.data.reader import load
from capsules.data.schema import RawRow
from capsules.data.split import split
from capsules.errors import DataError, DataFault
from capsules.reproduce.suite import absent
from capsules.reproduce.task import Task

VALIDATION_FRACTION = 0.1
LABEL = "label"
SUFFIXES = (".jsonl.gz", ".jsonl")
# Figures are only comparable on all rows, so that one bad row is one too many.
LIMITS = Limits(max_bad_rows=0, max_reported=1)


@dataclass(frozen=True, slots=True)
class Splits:
    """The rows of one run, all under the same labels in the same order.

    Attributes:
        train: to learn from.
        validation: to choose epoch and learning rate by.
        test: to measure on, once.
    """

    train: Dataset
    validation: Dataset
    test: Dataset

    @property
    def digest(self) -> str:
        """Hex sha256 of the rows and of the order of the labels."""
        parts = (self.train.digest, self.validation.digest, self.test.digest, *self.train.labels)
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Source:
    """A set as its files have it.

    Attributes:
        task: the set.
        train: its training rows.
        validation: those of its validation file.
        test: those of its test file; None where the validation file is the test.
    """

    task: Task
    train: Dataset
    validation: Dataset
    test: Dataset | None

    def splits(self, seed: int) -> Splits:
        """The rows of a run.

        Where the set has a labelled test file its own three parts are taken. Otherwise a
        stratified tenth of the training rows is set aside for validation, and the validation file
        is the test.

        Raises:
            DataError: a label has no row to learn from or to validate on.
        """
        if self.test is not None:
            parts = Splits(self.train, self.validation, self.test)
        else:
            try:
                carved = split(self.train, fraction=VALIDATION_FRACTION, seed=seed)
            except DataError as error:
                raise about(self.task, error) from error
            parts = Splits(carved.train, carved.validation, self.validation)
        require_every_label(parts.train, f"{self.task.name}: no training row")
        require_every_label(parts.validation, f"{self.task.name}: no validation row")
        return parts

    @property
    def note(self) -> str | None:
        """What makes figures on these rows different from published ones."""
        published = self.task.published_rows
        if published is None or len(self.train) == published:
            return None
        return f"{len(self.train):,} of the {published:,} published training rows"


def find(folder: Path, part: str) -> Path | None:
    """The file of one part of a set."""
    paths = [folder / f"{part}{suffix}" for suffix in SUFFIXES]
    return next((path for path in paths if path.is_file()), None)


def read(task: Task, data: Path) -> Source | None:
    """The rows of a set, or None where its files are absent.

    Args:
        task: the set.
        data: holds a folder for each set.

    Raises:
        DataError: a file cannot be used, to its last row.
    """
    folder = data / task.name
    train, validation = find(folder, "train"), find(folder, "validation")
    if train is None or validation is None:
        return None
    test = find(folder, "test") if task.has_test else None
    learned = rows(task, train, task.labels)
    try:
        learned.require_classes()
    except DataError as error:
        raise about(task, error) from error
    return Source(
        task=task,
        train=learned,
        validation=rows(task, validation, learned.labels),
        test=None if test is None else rows(task, test, learned.labels),
    )


def require(task: Task, data: Path) -> Source:
    """The rows of a set.

    Raises:
        DataError: its files are absent, or cannot be used.
    """
    source = read(task, data)
    if source is None:
        raise DataError(
            absent(task, data / task.name), code=DataFault.UNREADABLE_FILE, field="data"
        )
    return source


def rows(task: Task, path: Path, labels: Sequence[str] | None) -> Dataset:
    """The rows of one file, with labels as words.

    Raises:
        DataError: a column is missing, a row cannot be used or has another label.
    """
    try:
        found = load(path, fields=task.fields, limits=LIMITS)
    except DataError as error:
        if error.code == DataFault.TOO_MANY_BAD_ROWS:
            require_columns(task, path)
        raise
    examples = [replace(one, label=task.word(one.label)) for one in found]
    if labels is not None:
        known = set(labels)
        strange = next((one.label for one in examples if one.label not in known), None)
        if strange is not None:
            raise DataError(
                f"{path} has the label {strange!r}; {task.name} has: {', '.join(labels)}.",
                code=DataFault.UNKNOWN_LABEL,
                field=LABEL,
            )
    return Dataset.of(examples, labels=labels)


def require_columns(task: Task, path: Path) -> None:
    """Refuse a readable file whose first row lacks a column that the template names, or the label.

    Raises:
        DataError: naming the column.
    """
    with path.open("rb") as stream:
        first = next(
            jsonl.read_rows(Lines(stream, source=str(path), max_bytes=LIMITS.max_bytes)), None
        )
    if not isinstance(first, RawRow):
        return
    for column in (*task.fields, LABEL):
        if column not in first.values:
            raise DataError(
                f"{path} has no column {column!r}, which {task.name} needs; it has: "
                f"{', '.join(first.values)}. Rename its columns so that a line is such as "
                f"{task.row}",
                code=DataFault.MISSING_COLUMN,
                field=column,
            )


def require_every_label(dataset: Dataset, lacking: str) -> None:
    """Refuse rows that leave a label out.

    Raises:
        DataError: `lacking`, and the label.
    """
    for label, count in dataset.counts().items():
        if not count:
            raise DataError(
                f"{lacking} has the label {label!r}, so it cannot be learned or measured; give it "
                "two training rows or more.",
                code=DataFault.SPLIT_TOO_SMALL,
                field=LABEL,
            )


def about(task: Task, error: DataError) -> DataError:
    """The same error, naming the set."""
    return DataError(f"{task.name}: {error.message}", code=DataFault(error.code), field=error.field)
