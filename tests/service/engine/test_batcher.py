from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from service.engine.batcher import Limits, Pick, pick


@dataclass(eq=False, slots=True)
class Fake:
    """A waiting row; `number` tells rows apart in messages."""

    number: int
    tokens: int
    slots: int = 1
    deadline: float = 100.0
    cancelled: bool = False

    @property
    def size(self) -> int:
        return self.tokens + self.slots

    @property
    def shape(self) -> tuple[int, int]:
        return self.tokens, self.slots


def rows_of(*tokens: int) -> list[Fake]:
    return [Fake(number, count) for number, count in enumerate(tokens)]


def numbers(pick: Pick[Fake]) -> list[int]:
    return [row.number for row in pick.batch]


def computed(batch: tuple[Fake, ...]) -> int:
    return len(batch) * (max(row.tokens for row in batch) + max(row.slots for row in batch))


PACKED = Limits(
    max_rows=8, max_tokens=200, max_padding=1.25, free_padding=0, padding_free=True,
    attention_cost=1 / 128,
)  # fmt: skip
ROOMY = Limits(max_rows=8, max_tokens=10_000, max_padding=1.25, free_padding=0)

limits_strategy = st.builds(
    Limits,
    max_rows=st.integers(1, 12),
    max_tokens=st.integers(1, 400),
    max_padding=st.floats(1.0, 3.0),
    free_padding=st.integers(0, 64),
    window=st.integers(1, 20),
    padding_free=st.booleans(),
    attention_cost=st.sampled_from([0.0, 1 / 1024, 1 / 32]),
)


@st.composite
def queues(draw: st.DrawFn) -> list[Fake]:
    drawn = draw(
        st.lists(
            st.tuples(
                st.sampled_from([1, 2, 3, 4, 5, 6, 8, 12, 20, 30, 80]),
                st.sampled_from([1, 1, 1, 2, 20]),
                st.sampled_from([100.0, 100.0, 100.0, 9.0, 10.0]),
                st.sampled_from([False, False, False, True]),
            ),
            max_size=25,
        )
    )
    return [Fake(number, *values) for number, values in enumerate(drawn)]


NOW = 10.0


class TestChoice:
    def test_an_empty_queue_gives_nothing(self):
        assert pick([], NOW, ROOMY) == Pick(batch=(), cancelled=(), expired=())

    def test_a_lone_row_runs_at_once(self):
        assert numbers(pick(rows_of(5), NOW, ROOMY)) == [0]

    def test_rows_of_the_anchors_size_come_first_then_its_neighbours(self):
        assert numbers(pick(rows_of(20, 30, 21, 20, 19), NOW, ROOMY)) == [0, 3, 2, 4]

    def test_rows_of_equal_size_keep_their_order(self):
        limits = Limits(max_rows=3, max_tokens=10_000)
        assert numbers(pick(rows_of(20, 20, 20, 20), NOW, limits)) == [0, 1, 2]

    def test_the_oldest_row_decides_however_many_others_are_alike(self):
        assert numbers(pick(rows_of(70, *[5] * 20), NOW, ROOMY)) == [0]

    def test_a_row_over_the_budget_runs_alone(self):
        limits = Limits(max_rows=8, max_tokens=50)
        assert numbers(pick(rows_of(500, 500, 5), NOW, limits)) == [0]

    def test_the_token_budget_counts_padding_and_slots(self):
        limits = Limits(max_rows=8, max_tokens=33)
        assert numbers(pick(rows_of(10, 10, 10, 10), NOW, limits)) == [0, 1, 2]

    def test_padding_that_costs_little_is_allowed(self):
        few = Limits(max_rows=8, max_tokens=10_000, max_padding=1.0, free_padding=15)
        assert numbers(pick(rows_of(20, 5, 4), NOW, few)) == [0, 1]

    def test_a_long_capsule_counts_as_length(self):
        queue = [Fake(0, tokens=10), Fake(1, tokens=10, slots=100), Fake(2, tokens=10)]
        assert numbers(pick(queue, NOW, ROOMY)) == [0, 2]

    def test_a_row_that_does_not_fit_keeps_none_but_its_likes_out(self):
        queue = [Fake(0, tokens=30), Fake(1, tokens=11, slots=20), Fake(2, tokens=30)]
        assert numbers(pick(queue, NOW, ROOMY)) == [0, 2]

    def test_a_row_that_did_not_fit_is_not_overtaken_by_its_likes(self):
        # Beside the third row, which has as long a capsule, there would be room for the fourth.
        limits = Limits(max_rows=8, max_tokens=10_000, max_padding=1.65, free_padding=0)
        short: dict[str, Any] = {"tokens": 5, "slots": 20}
        queue = [Fake(0, 30), Fake(1, **short), Fake(2, tokens=17, slots=20), Fake(3, **short)]
        assert numbers(pick(queue, NOW, limits)) == [0, 2]
        del queue[1]
        assert numbers(pick(queue, NOW, limits)) == [0, 2, 3]

    def test_only_the_window_is_looked_at(self):
        limits = Limits(max_rows=8, max_tokens=10_000, free_padding=0, window=3)
        assert numbers(pick(rows_of(20, 60, 60, 20), NOW, limits)) == [0]

    def test_rows_to_be_dropped_take_no_room_in_the_window(self):
        limits = Limits(max_rows=8, max_tokens=10_000, free_padding=0, window=2)
        queue = rows_of(20, 20, 20, 20)
        queue[0].cancelled = True
        queue[1].deadline = NOW
        picked = pick(queue, NOW, limits)
        assert numbers(picked) == [2, 3]
        assert picked.cancelled == (queue[0],)
        assert picked.expired == (queue[1],)


class TestPaddingFree:
    def test_lengths_mix_in_the_order_of_arrival(self):
        assert numbers(pick(rows_of(20, 5, 30, 9), NOW, PACKED)) == [0, 1, 2, 3]

    def test_only_real_positions_count(self):
        limits = replace(PACKED, max_tokens=60, attention_cost=0.0)
        assert numbers(pick(rows_of(30, 5, 5, 5, 5), NOW, limits)) == [0, 1, 2, 3, 4]

    def test_a_row_that_does_not_fit_leaves_room_to_shorter_ones(self):
        limits = replace(PACKED, max_tokens=60)
        assert numbers(pick(rows_of(30, 40, 5), NOW, limits)) == [0, 2]

    def test_attention_keeps_very_different_lengths_apart(self):
        queue = rows_of(9, 9, 150, 9, 9)
        assert numbers(pick(queue, NOW, PACKED)) == [0, 1, 3, 4]
        assert numbers(pick(queue[2:], NOW, PACKED)) == [2]
        free = replace(PACKED, attention_cost=0.0)
        assert numbers(pick(queue, NOW, free)) == [0, 1, 2, 3, 4]

    def test_a_row_over_the_budget_runs_alone(self):
        assert numbers(pick(rows_of(500, 5), NOW, PACKED)) == [0]


examples = settings(max_examples=60, deadline=None)


class TestProperties:
    @examples
    @given(queues(), limits_strategy)
    def test_no_bound_is_broken_but_by_a_row_alone(self, queue, limits):
        batch = pick(queue, NOW, limits).batch
        if len(batch) > 1:
            real = sum(row.size for row in batch)
            needed, done = float(real), float(computed(batch))
            if limits.padding_free:
                longest = max(row.size for row in batch)
                needed = real + limits.attention_cost * sum(row.size**2 for row in batch)
                done = real + limits.attention_cost * len(batch) * longest**2
            assert len(batch) <= limits.max_rows
            assert (real if limits.padding_free else done) <= limits.max_tokens
            assert done <= max(needed * limits.max_padding, needed + limits.free_padding)

    @examples
    @given(queues(), limits_strategy)
    def test_cancelled_and_expired_rows_never_run(self, queue, limits):
        picked = pick(queue, NOW, limits)
        assert all(not row.cancelled and row.deadline > NOW for row in picked.batch)
        assert all(row.cancelled for row in picked.cancelled)
        assert all(row.deadline <= NOW for row in picked.expired)

    @examples
    @given(queues(), limits_strategy)
    def test_every_row_is_decided_upon_at_most_once(self, queue, limits):
        picked = pick(queue, NOW, limits)
        decided = [*picked.batch, *picked.cancelled, *picked.expired]
        assert len(set(decided)) == len(decided)
        assert set(decided) <= set(queue)

    @examples
    @given(queues(), limits_strategy)
    def test_the_oldest_live_row_is_always_in(self, queue, limits):
        live = [row for row in queue if not row.cancelled and row.deadline > NOW]
        batch = pick(queue, NOW, limits).batch
        assert list(batch[:1]) == live[:1]

    @examples
    @given(queues(), limits_strategy)
    def test_no_row_overtakes_an_older_one_of_its_shape(self, queue, limits):
        picked = pick(queue, NOW, limits)
        decided = {*picked.batch, *picked.cancelled, *picked.expired}
        left = [row for row in queue if row not in decided]
        for row in picked.batch:
            likes = [other for other in left if other.shape == row.shape]
            assert all(row.number < other.number for other in likes)

    @examples
    @given(queues(), limits_strategy)
    def test_the_same_queue_gives_the_same_pick(self, queue, limits):
        assert pick(queue, NOW, limits) == pick(list(queue), NOW, limits)

    @examples
    @given(queues(), limits_strategy)
    def test_every_row_goes_within_as_many_picks_as_rows_were_ahead_of_it(self, queue, limits):
        waiting = list(queue)
        for picks in range(1, len(queue) + 2):
            picked = pick(waiting, NOW, limits)
            decided = {*picked.batch, *picked.cancelled, *picked.expired}
            waiting = [row for row in waiting if row not in decided]
            assert all(row.number >= picks for row in waiting)
        assert waiting == []


def looked_at(queue: list[Fake], limits: Limits) -> int:
    """How many rows a pick takes out of an iterator."""
    rest = iter(queue)
    assert pick(rest, NOW, limits).batch
    return len(queue) - len(list(rest))


def test_a_pick_looks_at_no_more_of_a_long_queue_than_its_window():
    queue = [Fake(number, tokens=3 + number * 7919 % 60) for number in range(4096)]
    assert looked_at(queue, Limits(max_rows=32, max_tokens=2048)) == 512


@pytest.mark.parametrize(("tokens", "rows"), [([15] * 64, 15), ([31] * 64, 8), ([2] * 64, 64)])
def test_without_padding_a_pick_looks_no_further_than_to_a_batch_that_is_all_but_full(tokens, rows):
    limits = Limits(max_rows=64, max_tokens=256, window=128, padding_free=True)
    assert looked_at(rows_of(*tokens, *tokens), limits) == rows
    assert numbers(pick(rows_of(*tokens, *tokens), NOW, limits)) == list(range(rows))


def test_without_padding_a_row_that_does_not_fit_keeps_the_pick_looking():
    limits = Limits(max_rows=64, max_tokens=256, window=128, padding_free=True)
    assert numbers(pick(rows_of(99, 99, 99, 30, 9), NOW, limits)) == [0, 1, 3, 4]


@pytest.mark.parametrize("dead", ["cancelled", "expired"])
def test_a_queue_of_dead_rows_is_emptied_in_one_pick(dead):
    queue = rows_of(*[5] * 4096)
    for row in queue:
        row.cancelled = dead == "cancelled"
        row.deadline = NOW if dead == "expired" else 100.0
    picked = pick(queue, NOW, Limits(max_rows=32, max_tokens=2048))
    assert picked.batch == ()
    assert len(getattr(picked, dead)) == 4096
