import statistics

import pytest
from scipy import stats  # type: ignore[import-untyped]

from capsules.reproduce.summary import cells, interval, paired


def test_seeds_are_summed_up(make_row):
    rows = [make_row(seed=seed, score=score) for seed, score in ((1, 0.6), (0, 0.7), (2, 0.8))]
    (cell,) = cells(rows)
    assert cell.seeds == (0, 1, 2)
    assert cell.scores == (0.7, 0.6, 0.8)
    assert cell.mean == pytest.approx(0.7)
    assert cell.deviation == pytest.approx(0.1)
    assert cell.percentage == pytest.approx(0.3)


def test_one_seed_has_no_deviation(make_row):
    (cell,) = cells([make_row()])
    assert cell.deviation is None


def test_search_counts_every_rate(make_row):
    (cell,) = cells([make_row(rates=(0.01, 0.02, 0.05))])
    assert (cell.seconds, cell.search_seconds) == (6.0, 18.0)


def test_order_is_that_of_suites_and_methods(make_row):
    rows = [
        make_row("mine"),
        make_row("trec"),
        make_row("cb", "lora"),
        make_row("cb", "linear-head"),
        make_row("cb", "capsule"),
        make_row("another"),
    ]
    assert [(cell.task, cell.method) for cell in cells(rows)] == [
        ("cb", "capsule"),
        ("cb", "linear-head"),
        ("cb", "lora"),
        ("trec", "capsule"),
        ("another", "capsule"),
        ("mine", "capsule"),
    ]


def pairs_of(make_row, capsule, task_only):
    rows = [make_row(seed=seed, score=score) for seed, score in enumerate(capsule)]
    rows += [make_row("cb", "task-only", seed, score) for seed, score in enumerate(task_only)]
    return paired(rows, "capsule", "task-only")


def test_differences_are_taken_seed_by_seed(make_row):
    (pair,) = pairs_of(make_row, (0.7, 0.8, 0.9), (0.6, 0.65, 0.85))
    assert pair.differences == pytest.approx((0.1, 0.15, 0.05))
    assert pair.mean == pytest.approx(0.1)
    expected = stats.t.interval(0.95, 2, loc=0.1, scale=statistics.stdev(pair.differences) / 3**0.5)
    assert (pair.low, pair.high) == pytest.approx(expected)
    assert pair.one_row == 1 / 50


@pytest.mark.parametrize(
    ("capsule", "task_only", "verdict"),
    [
        ((0.9, 0.91, 0.9), (0.7, 0.7, 0.7), "helps"),
        ((0.7, 0.71, 0.7), (0.9, 0.9, 0.9), "hurts"),
        ((0.9, 0.7, 0.8), (0.7, 0.8, 0.8), "undecided"),
        ((0.8, 0.8, 0.8), (0.8, 0.8, 0.8), "equal"),
        # A row of fifty weighs 0.02, and equal differences have no deviation.
        ((0.78, 0.78, 0.78), (0.8, 0.8, 0.8), "undecided"),
        ((0.82, 0.82, 0.82), (0.8, 0.8, 0.8), "undecided"),
        ((0.79, 0.79, 0.79), (0.8, 0.8, 0.8), "undecided"),
        ((0.76, 0.76, 0.76), (0.8, 0.8, 0.8), "hurts"),
        ((0.84, 0.84, 0.84), (0.8, 0.8, 0.8), "helps"),
        ((0.8,), (0.8,), "one seed"),
        ((0.9,), (0.7,), "one seed"),
    ],
)
def test_verdict_is_what_the_interval_allows(make_row, capsule, task_only, verdict):
    (pair,) = pairs_of(make_row, capsule, task_only)
    assert pair.verdict == verdict


def test_interval_is_never_narrower_than_a_row():
    assert interval([-0.01] * 3, least=0.02) == pytest.approx((-0.03, 0.01))
    wide = interval([-0.1, 0.1], least=0.02)
    assert wide == pytest.approx(stats.t.interval(0.95, 1, loc=0, scale=0.1))
    assert interval([0.3], least=0.02) == (None, None)


def test_only_shared_seeds_are_compared(make_row):
    (pair,) = pairs_of(make_row, (0.7, 0.8, 0.9), (0.6,))
    assert pair.seeds == (0,)
    assert pair.low is None
    assert paired([make_row()], "capsule", "task-only") == []


def test_training_takes_as_long_as_with_the_seed_that_took_least(make_row):
    [cell] = cells([make_row(seed=0, seconds=6.5), make_row(seed=1, seconds=4.0)])
    assert (cell.seconds, cell.search_seconds) == (4.0, 6.0)
