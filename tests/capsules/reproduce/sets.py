"""Tiny sets in the layout of the real ones, on words that the tiny backbone knows."""

import gzip
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

from capsules.reproduce.suite import SUITES
from capsules.reproduce.task import Task
from tests.support.backbones import WORDS
from tests.support.rows import as_jsonl

TASKS = {task.name: task for tasks in SUITES.values() for task in tasks}
CB_LABELS = ("entailment", "contradiction", "neutral")


def rows(task: Task, count: int, *, seed: int = 0) -> list[dict[str, str]]:
    """Rows whose every field gives the label away."""
    chance = random.Random(seed)
    labels = task.labels or ("no", "yes")
    found = []
    for number in range(count):
        place = number % len(labels)
        fields = {name: f"{WORDS[place]} {chance.choice(WORDS[9:])}" for name in task.fields}
        found.append({**fields, "label": labels[place]})
    return found


def write_file(folder: Path, part: str, lines: Sequence[Mapping[str, object]]) -> Path:
    """One part of a set."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{part}.jsonl.gz"
    path.write_bytes(gzip.compress(as_jsonl(lines)))
    return path


def write_set(data: Path, name: str, *, train: int = 40, validation: int = 12) -> Path:
    """A whole set; single texts with a test file of as many rows as the validation file."""
    task = TASKS[name]
    folder = data / name
    parts = {"train": train, "validation": validation}
    if task.has_test:
        parts["test"] = validation
    for seed, (part, count) in enumerate(parts.items()):
        write_file(folder, part, rows(task, count, seed=seed))
    return folder
