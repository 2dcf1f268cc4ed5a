import pytest
from hypothesis import given, strategies as st

from benchmarks.errors import BenchmarkError
from benchmarks.sampling import (
    difference,
    difference_of_medians,
    interleave,
    middle,
    ratio,
    seconds,
)


def test_sides_take_turns_and_who_goes_first_rotates():
    calls = []

    def side(name):
        return lambda turn: calls.append((name, turn))

    interleave({"a": side("a"), "b": side("b"), "c": side("c")}, 4, warm_up=0)
    assert "".join(name for name, _ in calls) == "abcbcacababc"
    assert [turn for _, turn in calls] == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3


def test_warm_up_values_are_thrown_away():
    values = iter(range(100))
    measured = interleave({"a": lambda _: next(values), "b": lambda _: -1}, 3, warm_up=2)
    assert measured == {"a": [2, 3, 4], "b": [-1, -1, -1]}


def test_warm_up_rounds_have_the_number_of_the_first():
    turns: list[int] = []
    interleave({"a": turns.append}, 2, warm_up=3)
    assert turns == [0, 0, 0, 0, 1]


def test_sides_may_come_to_rest_before_the_next(monkeypatch):
    pauses: list[float] = []
    monkeypatch.setattr("benchmarks.sampling.time.sleep", pauses.append)
    interleave({"a": lambda _: 1, "b": lambda _: 2}, 1, pause_s=0.3)
    assert pauses == [0.3] * 4


def test_ratio_does_not_see_a_machine_that_slows_down():
    slowing = [1.0, 2.0, 5.0, 40.0]
    found = ratio(slowing, [2 * value for value in slowing])
    assert (found.value, found.low, found.high) == (0.5, 0.5, 0.5)


def test_ratio_is_the_median_of_the_rounds():
    assert ratio([1.0, 8.0, 9.0], [2.0, 2.0, 1.0]).value == 4.0


def test_difference_is_that_of_the_rounds():
    left, right = [1.0, 10.0, 100.0], [0.0, 100.0, 97.0]
    assert difference(left, right).value == 1.0
    assert difference_of_medians(left, right).value == 10.0 - 97.0


@given(st.lists(st.floats(0.1, 1e6), min_size=1, max_size=30))
def test_interval_holds_the_median_and_stays_within_the_values(values):
    found = middle(values)
    assert min(values) <= found.low <= found.value <= found.high <= max(values)
    assert middle(values) == found


def test_more_rounds_narrow_the_interval():
    few, many = middle([1.0, 2.0, 3.0]), middle([1.0, 2.0, 3.0] * 100)
    assert many.high - many.low < few.high - few.low


@pytest.mark.parametrize("compare", [ratio, difference, difference_of_medians])
def test_sides_with_different_rounds_cannot_be_compared(compare):
    with pytest.raises(BenchmarkError, match="1 values cannot be compared with 2"):
        compare([1.0, 2.0], [1.0])


def test_nothing_has_no_median():
    with pytest.raises(BenchmarkError, match="at least one"):
        middle([])


def test_seconds_counts_only_the_work():
    done = []
    assert 0 <= seconds(lambda: done.append(1)) < 60
    assert done == [1]
