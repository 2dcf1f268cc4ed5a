"""The shipped capsules with their test data, and what another precision changes in their answers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
from numpy.typing import NDArray

from benchmarks.errors import BenchmarkError
from benchmarks.result import Figure, Series, figure, series
from benchmarks.sampling import Estimate, bootstrap
from benchmarks.texts import SPLIT, read_rows
from capsules import zoo
from capsules.artefact.file import parse

Floats = NDArray[np.float64]

Answers = Sequence[Sequence[float]]
"""Of each row, the probability of each label."""


@dataclass(frozen=True, slots=True)
class Exam:
    """A shipped capsule and rows that it was not trained on.

    Attributes:
        task: its task.
        artefact: its file.
        texts: of the rows.
        expected: index of each row's label, in head order.
    """

    task: str
    artefact: bytes
    texts: tuple[str, ...]
    expected: tuple[int, ...]


def exams(data: Path | None, fingerprint: str, most: int) -> tuple[list[Exam], list[str]]:
    """One for each shipped capsule, and why some are missing.

    Args:
        data: folder of data sets, or None.
        fingerprint: of the backbone.
        most: rows of each, at most.

    Raises:
        BenchmarkError: see :func:`exam`.
    """
    if data is None:
        return [], ["Accuracy is left out: the data sets are not here."]
    found = []
    notes = []
    for file in zoo.artefacts():
        artefact = file.read_bytes()
        manifest = parse(artefact).manifest
        if manifest.backbone.fingerprint != fingerprint:
            return [], ["Accuracy is left out: the shipped capsules are for another backbone."]
        path = data / manifest.task / SPLIT
        if path.exists():
            found.append(exam(manifest.task, artefact, manifest.labels, path, most))
        else:
            notes.append(f"Accuracy of {manifest.task} is left out: its data is not here.")
    return found, notes


def exam(task: str, artefact: bytes, labels: Sequence[str], path: Path, most: int) -> Exam:
    """At most so many rows of a test file, always the same.

    Raises:
        BenchmarkError: one has a label that the capsule does not know.
    """
    rows = read_rows(path)
    rows = Random(0).sample(rows, min(most, len(rows)))
    known = {label: index for index, label in enumerate(labels)}
    strange = {label for _, label in rows} - known.keys()
    if strange:
        raise BenchmarkError(
            f"{path} has the label {min(strange)!r}, which the capsule of {task} does not know."
        )
    return Exam(
        task=task,
        artefact=artefact,
        texts=tuple(text for text, _ in rows),
        expected=tuple(known[label] for _, label in rows),
    )


def accuracy_figures(
    every: Sequence[Exam], name: str, answers: Sequence[Answers], exact: Sequence[Answers]
) -> Iterator[Figure]:
    """What one side's answers differ in from exact ones.

    Args:
        every: the exams.
        name: of the side.
        answers: its own, by exam.
        exact: those of float32.
    """
    for one, ours, theirs in zip(every, answers, exact, strict=True):
        lost = right(one, theirs) - right(one, ours)
        yield figure(f"{name}: accuracy lost on {one.task}", "points", mean(lost * 100))
    pairs = list(zip(answers, exact, strict=True))
    changed = np.concatenate([winners(ours) != winners(theirs) for ours, theirs in pairs])
    apart = [np.abs(np.asarray(ours) - np.asarray(theirs)) for ours, theirs in pairs]
    largest = np.concatenate([one.max(axis=1) for one in apart])
    average = np.concatenate([one.mean(axis=1) for one in apart])
    yield figure(f"{name}: rows whose label changes", "%", mean(changed * 100.0))
    yield figure(f"{name}: mean difference of a probability", "ratio", mean(average))
    yield figure(
        f"{name}: largest difference of a probability",
        "ratio",
        bootstrap(len(largest), lambda picks: np.max(largest[picks], axis=-1)),
    )


def accuracy_series(
    every: Sequence[Exam], answered: Mapping[str, Sequence[Answers]]
) -> Iterator[Series]:
    """Part of the rows of each test set that each side labels as they should be."""
    for name, answers in answered.items():
        for one, own in zip(every, answers, strict=True):
            yield series(one.task, name, "% right", [float(right(one, own).mean()) * 100])


def winners(answers: Answers) -> NDArray[np.int64]:
    """The label of each row."""
    found: NDArray[np.int64] = np.asarray(answers).argmax(axis=1)
    return found


def right(one: Exam, answers: Answers) -> Floats:
    """1 for each row whose label is the expected one, else 0."""
    found: Floats = (winners(answers) == np.asarray(one.expected)).astype(np.float64)
    return found


def mean(values: Floats) -> Estimate:
    """The mean over rows."""
    return bootstrap(len(values), lambda picks: np.mean(values[picks], axis=-1))
