import pytest
from hypothesis import given, settings, strategies as st

from service.engine.ranges import FreeRanges


def test_the_smallest_range_that_is_long_enough_is_used():
    free = FreeRanges()
    free.give(0, 20)
    free.give(30, 32)
    free.give(40, 45)
    assert free.take(3) == 40
    assert free.take(2) == 30
    assert free.take(2) == 43
    assert free.ranges == [(0, 20)]
    assert free.take(20) == 0
    assert free.ranges == []


def test_neighbours_are_merged():
    free = FreeRanges()
    free.give(0, 2)
    free.give(4, 6)
    free.give(2, 4)
    assert free.ranges == [(0, 6)]


def test_scattered_slots_do_not_make_a_row():
    free = FreeRanges()
    free.give(0, 1)
    free.give(2, 3)
    assert not free.fits(2)
    with pytest.raises(AssertionError, match="2 slots"):
        free.take(2)


def test_the_tail_is_what_is_free_at_the_end():
    free = FreeRanges()
    assert free.tail(8) == 8
    free.give(2, 4)
    assert free.tail(8) == 8
    free.give(6, 8)
    assert free.tail(8) == 6


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.booleans(), st.randoms(use_true_random=False))))
def test_what_is_taken_is_never_shared_and_comes_back_whole(steps):
    free = FreeRanges()
    free.give(0, 64)
    taken: list[tuple[int, int]] = []
    for count, giving, random in steps:
        if giving and taken:
            free.give(*taken.pop(random.randrange(len(taken))))
        elif free.fits(count):
            start = free.take(count)
            taken.append((start, start + count))
        slots = [slot for start, end in [*taken, *free.ranges] for slot in range(start, end)]
        assert sorted(slots) == list(range(64))
    for span in taken:
        free.give(*span)
    assert free.ranges == [(0, 64)]
