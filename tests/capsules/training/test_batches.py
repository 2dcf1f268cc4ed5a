import random

import pytest
from hypothesis import given, strategies as st

from capsules.training.batches import POOL_BATCHES, length_bucketed

seeds = st.integers(0, 2**63 - 1)


@given(st.lists(st.integers(1, 512), min_size=1, max_size=300), st.integers(1, 40), seeds)
def test_every_row_comes_once_in_batches_of_at_most_the_size(
    lengths: list[int], size: int, seed: int
) -> None:
    batches = length_bucketed(lengths, size, seed=seed, epoch=1)
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    assert all(1 <= len(batch) <= size for batch in batches)


@pytest.mark.parametrize("rows", [1, 399, 400, 401, 1000])
def test_every_epoch_has_equally_many_batches(rows: int) -> None:
    counts = {
        len(length_bucketed([5] * rows, 8, seed=seed, epoch=epoch))
        for seed in range(3)
        for epoch in range(1, 4)
    }
    assert counts == {-(-rows // 8)}


def test_the_order_depends_on_seed_and_epoch_alone() -> None:
    lengths = [random.Random(0).randint(1, 60) for _ in range(200)]
    orders = {
        (seed, epoch): length_bucketed(lengths, 8, seed=seed, epoch=epoch)
        for seed in (0, 1, 2**63 - 1)
        for epoch in (1, 2)
    }
    assert len({str(order) for order in orders.values()}) == 6
    for (seed, epoch), order in orders.items():
        assert length_bucketed(lengths, 8, seed=seed, epoch=epoch) == order


def test_the_order_of_old_checkpoints_is_kept() -> None:
    """Runs that are resumed after an upgrade must see the rows they would have seen before."""
    order = length_bucketed([3, 1, 4, 1, 5, 9, 2, 6], 3, seed=7, epoch=2)
    assert order == [[3, 1, 6], [0, 2, 4], [7, 5]]


def test_rows_of_a_batch_are_of_similar_length() -> None:
    chance = random.Random(0)
    lengths = [chance.randint(5, 100) for _ in range(32 * POOL_BATCHES)]

    def padding(batches: list[list[int]]) -> float:
        padded = sum(max(lengths[row] for row in batch) * len(batch) for batch in batches)
        return padded / sum(lengths) - 1

    shuffled = list(range(len(lengths)))
    chance.shuffle(shuffled)
    at_random = [shuffled[at : at + 32] for at in range(0, len(shuffled), 32)]
    bucketed = length_bucketed(lengths, 32, seed=0, epoch=1)
    assert padding(at_random) > 0.5
    assert padding(bucketed) < 0.05
    # Short batches do not all come first.
    widths = [max(lengths[row] for row in batch) for batch in bucketed]
    assert widths != sorted(widths)


def test_batches_differ_between_epochs_beyond_one_pool() -> None:
    lengths = [random.Random(1).randint(1, 60) for _ in range(2 * 4 * POOL_BATCHES)]
    first, second = (
        {frozenset(batch) for batch in length_bucketed(lengths, 4, seed=0, epoch=epoch)}
        for epoch in (1, 2)
    )
    assert len(first & second) < len(first) / 2
