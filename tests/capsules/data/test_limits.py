import pytest

from capsules.data.limits import Limits
from capsules.errors import OptionError


@pytest.mark.parametrize(
    ("rows", "allowed"),
    [(0, 0), (3, 0), (4, 1), (40, 10), (80, 20), (2_000, 20), (2_100, 21), (100_000, 1_000)],
)
def test_by_default_twenty_or_a_hundredth_but_never_over_a_quarter(rows, allowed):
    assert Limits().allowed(rows) == allowed


def test_a_count_and_a_fraction():
    assert Limits(max_bad_rows=7).allowed(10) == 7
    assert Limits(max_bad_rows=0.25).allowed(10) == 2
    assert Limits(max_bad_rows=1.0).allowed(10) == 10
    # One row, not all of them.
    assert Limits(max_bad_rows=1).allowed(10) == 1


def test_only_a_count_can_be_exhausted_before_the_end():
    assert Limits(max_bad_rows=2).exhausted(3)
    assert not Limits(max_bad_rows=2).exhausted(2)
    assert not Limits(max_bad_rows=0.1).exhausted(1000)
    assert not Limits().exhausted(1000)


@pytest.mark.parametrize("bad", [-1, -0.5, 1.5, float("nan")])
def test_an_impossible_share_is_refused(bad):
    with pytest.raises(OptionError, match="max_bad_rows") as caught:
        Limits(max_bad_rows=bad)
    assert caught.value.field == "max_bad_rows"


def test_bounds_below_one_are_refused():
    with pytest.raises(OptionError, match="max_bytes"):
        Limits(max_bytes=0)
    with pytest.raises(OptionError, match="max_rows"):
        Limits(max_rows=0)
    with pytest.raises(OptionError, match="max_reported"):
        Limits(max_reported=0)
