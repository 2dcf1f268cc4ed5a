"""Measures rivals side by side, so that whatever slows the machine down slows all of them.

In each round every side runs once; who goes first rotates. What is compared are the two values of
one round, never values of different times.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.errors import BenchmarkError

T = TypeVar("T")

RESAMPLES = 2000
SEED = 0


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % interval, by the bootstrap over rounds."""

    value: float
    low: float
    high: float


def interleave(
    sides: Mapping[str, Callable[[int], T]],
    rounds: int,
    *,
    warm_up: int = 1,
    pause_s: float = 0.0,
) -> dict[str, list[T]]:
    """Run all sides once a round: A B C, B C A, C A B, and so on.

    Args:
        sides: by name; each is given the number of the round, from 0, and returns what it
            measured. What it does beside that is in nobody's time.
        rounds: how often each runs.
        warm_up: rounds before these whose values are thrown away.
        pause_s: seconds before each, for threads of the one before that spin on for a while.

    Returns:
        The values of each side, in the order of the rounds.
    """
    names = list(sides)
    values: dict[str, list[T]] = {name: [] for name in names}
    for turn in range(-warm_up, rounds):
        first = turn % len(names)
        for name in (*names[first:], *names[:first]):
            time.sleep(pause_s)
            value = sides[name](max(turn, 0))
            if turn >= 0:
                values[name].append(value)
    return values


def seconds(work: Callable[[], object]) -> float:
    """How long something takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def ratio(over: Sequence[float], under: Sequence[float]) -> Estimate:
    """The median over rounds of ``over / under``.

    Args:
        over: one value a round.
        under: likewise, of the same rounds.
    """
    quotients = paired(over) / paired(under, like=over)
    return bootstrap(len(over), lambda picks: np.median(quotients[picks], axis=-1))


def difference(left: Sequence[float], right: Sequence[float]) -> Estimate:
    """The median over rounds of ``left - right``.

    Args:
        left: one value a round.
        right: likewise, of the same rounds.
    """
    differences = paired(left) - paired(right, like=left)
    return bootstrap(len(left), lambda picks: np.median(differences[picks], axis=-1))


def difference_of_medians(left: Sequence[float], right: Sequence[float]) -> Estimate:
    """``median(left) - median(right)``: how far one p50 is from another.

    Args:
        left: one value a text.
        right: likewise, of the same texts.
    """
    a, b = paired(left), paired(right, like=left)
    return bootstrap(
        len(left), lambda picks: np.median(a[picks], axis=-1) - np.median(b[picks], axis=-1)
    )


def middle(values: Sequence[float]) -> Estimate:
    """The median."""
    array = paired(values)
    return bootstrap(len(values), lambda picks: np.median(array[picks], axis=-1))


def paired(values: Sequence[float], like: Sequence[float] | None = None) -> NDArray[np.float64]:
    """Values as an array, as many as there are on the other side.

    Raises:
        BenchmarkError: there are none, or another number of them.
    """
    if not values or (like is not None and len(like) != len(values)):
        raise BenchmarkError(
            f"{len(values)} values cannot be compared"
            + ("" if like is None else f" with {len(like)}")
            + "; measure both sides in the same rounds, and at least one."
        )
    return np.asarray(values, dtype=np.float64)


def bootstrap(
    count: int, statistic: Callable[[NDArray[np.int64]], NDArray[np.float64]]
) -> Estimate:
    """A statistic of `count` rounds, and how much it varies when rounds are drawn anew.

    Args:
        count: how many rounds there are.
        statistic: takes positions of rounds, [..., count], and gives one value for each line.
    """
    everything = np.arange(count, dtype=np.int64)
    picks = np.random.default_rng(SEED).integers(0, count, (RESAMPLES, count), dtype=np.int64)
    low, high = np.percentile(statistic(picks), (2.5, 97.5))
    return Estimate(value=float(statistic(everything)), low=float(low), high=float(high))
