"""Runs summed up over their seeds."""

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import computed_field
from scipy import stats  # type: ignore[import-untyped]

from capsules.reproduce.method import METHODS
from capsules.reproduce.metric import Metric
from capsules.reproduce.record import Key, Record, Row
from capsules.reproduce.suite import SUITES

CONFIDENCE = 0.95
ORDER = [task.name for tasks in SUITES.values() for task in tasks]

# What rounding leaves of a difference that is none.
ROUNDING = 1e-9

Verdict = Literal["helps", "hurts", "undecided", "equal", "one seed"]


class Cell(Record):
    """A method on a set, over seeds.

    Attributes:
        task: the set.
        method: what was trained.
        metric: what the scores are.
        seeds: those that were run.
        scores: on the test rows, in the order of the seeds.
        validation: mean score on the validation rows.
        trainable_parameters: learned numbers, heads included.
        percentage: the same in per cent of the backbone's.
        learning_rates: the chosen ones, in the order of the seeds.
        epochs: mean number run.
        seconds: of the training at the chosen rate, with the seed that took least: whatever else a
            machine does only makes it longer.
        search_seconds: likewise of the training at all rates.
        peak_memory_mib: the highest of the seeds.
        train_rows: mean number of rows learned from.
        test_rows: rows measured on.
        note: what makes it different from published figures.
    """

    task: str
    method: str
    metric: Metric
    seeds: tuple[int, ...]
    scores: tuple[float, ...]
    validation: float
    trainable_parameters: int
    percentage: float
    learning_rates: tuple[float, ...]
    epochs: float
    seconds: float
    search_seconds: float
    peak_memory_mib: float
    train_rows: float
    test_rows: int
    note: str | None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def mean(self) -> float:
        """Mean test score."""
        return statistics.fmean(self.scores)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def deviation(self) -> float | None:
        """Standard deviation of the test score over seeds; None for a single one."""
        return statistics.stdev(self.scores) if len(self.scores) > 1 else None


class Paired(Record):
    """One method minus another on a set, seed by seed: same rows, same split, same order.

    Attributes:
        task: the set.
        method: the one.
        against: the other.
        seeds: those that both were run with.
        differences: of the test scores, in the order of the seeds.
        one_row: what a single test row weighs in accuracy; no smaller difference can be seen.
        low: lower end of the 95 % interval of the mean difference, by Student's t over the seeds;
            but at least one test row to either side, since seeds that happen to agree are no proof
            against a single row; None for a single seed.
        high: upper end.
    """

    task: str
    method: str
    against: str
    seeds: tuple[int, ...]
    differences: tuple[float, ...]
    one_row: float
    low: float | None
    high: float | None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def mean(self) -> float:
        """Mean difference."""
        return statistics.fmean(self.differences)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def verdict(self) -> Verdict:
        """Whether the one is better, as far as these seeds tell."""
        if self.low is None or self.high is None:
            return "one seed"
        if not any(self.differences):
            return "equal"
        if self.low > ROUNDING:
            return "helps"
        return "hurts" if self.high < -ROUNDING else "undecided"


def cells(rows: Iterable[Row]) -> list[Cell]:
    """One for each set and method, in the order of suites and methods."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in sorted(rows, key=lambda row: (*position(row.task, row.method), row.seed)):
        groups.setdefault((row.task, row.method), []).append(row)
    return [cell(group) for group in groups.values()]


def cell(rows: Sequence[Row]) -> Cell:
    """The seeds of one set and method together."""
    first = rows[0]
    return Cell(
        task=first.task,
        method=first.method,
        metric=first.metric,
        seeds=tuple(row.seed for row in rows),
        scores=tuple(row.test.score for row in rows),
        validation=statistics.fmean(row.validation.score for row in rows),
        trainable_parameters=first.trainable_parameters,
        percentage=100 * first.trainable_parameters / first.configuration.backbone.parameters,
        learning_rates=tuple(row.learning_rate for row in rows),
        epochs=statistics.fmean(row.epochs for row in rows),
        seconds=min(row.seconds for row in rows),
        search_seconds=min(row.search_seconds for row in rows),
        peak_memory_mib=max(row.peak_memory_mib for row in rows),
        train_rows=statistics.fmean(row.train_rows for row in rows),
        test_rows=first.test.rows,
        note=first.note,
    )


def paired(rows: Iterable[Row], method: str, against: str) -> list[Paired]:
    """One for each set on which both methods share a seed, in the order of suites."""
    by_key = {row.key: row for row in rows}
    tasks = sorted({task for task, _, _ in by_key}, key=lambda task: position(task, method))
    found = []
    for task in tasks:
        seeds = sorted(
            seed
            for name, one, seed in by_key
            if (name, one) == (task, method) and (task, against, seed) in by_key
        )
        if seeds:
            found.append(pair(by_key, task, method, against, seeds))
    return found


def pair(
    by_key: dict[Key, Row],
    task: str,
    method: str,
    against: str,
    seeds: Sequence[int],
) -> Paired:
    """The differences on one set."""
    differences = [
        by_key[task, method, seed].test.score - by_key[task, against, seed].test.score
        for seed in seeds
    ]
    one_row = 1 / by_key[task, method, seeds[0]].test.rows
    low, high = interval(differences, least=one_row)
    return Paired(
        task=task,
        method=method,
        against=against,
        seeds=tuple(seeds),
        differences=tuple(differences),
        one_row=one_row,
        low=low,
        high=high,
    )


def interval(values: Sequence[float], *, least: float) -> tuple[float, float] | tuple[None, None]:
    """The 95 % interval of a mean, ``m ± max(t s / sqrt(n), least)``; none for a single value."""
    count = len(values)
    if count < 2:
        return None, None
    mean = statistics.fmean(values)
    quantile = float(stats.t.ppf((1 + CONFIDENCE) / 2, count - 1))
    half = max(quantile * statistics.stdev(values) / math.sqrt(count), least)
    return mean - half, mean + half


def position(task: str, method: str) -> tuple[int, str, int]:
    """Where a set and a method stand in tables; sets of no suite come last, by name."""
    place = ORDER.index(task) if task in ORDER else len(ORDER)
    return place, task, list(METHODS).index(method)
