"""What a benchmark found, and the file that it is kept in."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import JsonValue, ValidationError

from benchmarks.errors import BenchmarkError
from benchmarks.machine import Machine
from benchmarks.record import Record
from benchmarks.sampling import Estimate

DIGITS = 6
"""Significant digits of a number in a file; no clock tells more."""


class Series(Record):
    """Everything one side measured in one case.

    Attributes:
        case: what was done, e.g. a batch shape.
        side: who did it.
        unit: of the samples, e.g. `ms`.
        median: of the samples.
        q1: their lower quartile.
        q3: their upper quartile.
        samples: as measured, in the order of the rounds.
    """

    case: str
    side: str
    unit: str
    median: float
    q1: float
    q3: float
    samples: tuple[float, ...]


class Goal(Record):
    """The bound that a figure is held to."""

    kind: Literal["at least", "at most"]
    bound: float

    def met_by(self, value: float) -> bool:
        """Whether a value is within the bound."""
        return value >= self.bound if self.kind == "at least" else value <= self.bound


class Figure(Record):
    """One number that answers the question.

    Attributes:
        name: what it says.
        unit: `ratio` where it has none.
        value: the number.
        low: lower end of its 95 % interval.
        high: upper end.
        goal: what it is held to, or None.
    """

    name: str
    unit: str
    value: float
    low: float
    high: float
    goal: Goal | None = None

    @property
    def met(self) -> bool | None:
        """Whether the goal is reached; None where there is none."""
        return None if self.goal is None else self.goal.met_by(self.value)


class Findings(Record):
    """What a benchmark measured.

    Attributes:
        options: sizes and settings that it ran with.
        figures: the answers, the most important first.
        series: what they were computed from.
        notes: what a reader must know to read them rightly.
    """

    options: dict[str, JsonValue]
    figures: tuple[Figure, ...]
    series: tuple[Series, ...]
    notes: tuple[str, ...] = ()


class Result(Record):
    """Findings with where and when they were made; the content of a result file."""

    benchmark: str
    question: str
    recorded_at: datetime
    machine: Machine
    findings: Findings

    def write(self, folder: Path) -> Path:
        """Keep it as `<benchmark>.json`, in place of an older one."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.benchmark}.json"
        path.write_text(self.model_dump_json(indent=1) + "\n", encoding="utf-8")
        return path


def read_result(path: Path) -> Result:
    """Read a file that :meth:`Result.write` wrote.

    Raises:
        BenchmarkError: it is not one of them.
        OSError: it cannot be read.
    """
    try:
        return Result.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise BenchmarkError(
            f"{path} is not a result of these benchmarks; run `python -m benchmarks {path.stem}` "
            f"again. {error}"
        ) from error


def read_results(folder: Path, names: Sequence[str]) -> Mapping[str, Result]:
    """The results that there are, by benchmark.

    Raises:
        BenchmarkError: a file is not a result.
    """
    paths = {name: folder / f"{name}.json" for name in names}
    return {name: read_result(path) for name, path in paths.items() if path.exists()}


def series(case: str, side: str, unit: str, samples: Sequence[float]) -> Series:
    """What one side measured in one case."""
    q1, median, q3 = np.percentile(samples, (25, 50, 75)).tolist()
    return Series(
        case=case,
        side=side,
        unit=unit,
        median=rounded(median),
        q1=rounded(q1),
        q3=rounded(q3),
        samples=tuple(rounded(sample) for sample in samples),
    )


def figure(name: str, unit: str, estimate: Estimate, goal: Goal | None = None) -> Figure:
    """One number that answers the question."""
    return Figure(
        name=name,
        unit=unit,
        value=rounded(estimate.value),
        low=rounded(estimate.low),
        high=rounded(estimate.high),
        goal=goal,
    )


def at_least(bound: float) -> Goal:
    """A lower bound."""
    return Goal(kind="at least", bound=bound)


def at_most(bound: float) -> Goal:
    """An upper bound."""
    return Goal(kind="at most", bound=bound)


def rounded(value: float) -> float:
    """To the digits that are kept."""
    return float(f"{value:.{DIGITS}g}")


def now() -> datetime:
    """The present moment, in UTC."""
    return datetime.now(UTC).replace(microsecond=0)
