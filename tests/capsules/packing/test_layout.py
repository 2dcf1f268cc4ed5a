import numpy as np
import pytest

from capsules.backbones.attention import Sight
from capsules.packing.layout import BIN_WIDTH, LOWEST, Layout, fill_bins


def layout(lengths: list[int], slots: list[int]) -> Layout:
    return Layout(np.array(lengths), np.array(slots))


@pytest.fixture
def three() -> Layout:
    """Texts of 2, 1 and 3 tokens, with 1, 0 and 2 slots."""
    return layout([2, 1, 3], [1, 0, 2])


def test_slots_come_first_then_texts_row_by_row(three: Layout) -> None:
    assert (three.capsules, three.tokens, three.positions) == (3, 6, 9)
    assert three.row.tolist() == [0, 2, 2, 0, 0, 1, 2, 2, 2]
    assert three.place.tolist() == [0, 0, 1, 1, 2, 0, 2, 3, 4]
    assert three.is_slot.tolist() == [True] * 3 + [False] * 6
    assert three.text_places.tolist() == [0, 1, 0, 0, 1, 2]
    assert three.slot_starts.tolist() == [0, 1, 1]
    assert three.last.tolist() == [4, 5, 8]


def test_every_position_has_a_cell_of_its_own_and_can_be_found_there(three: Layout) -> None:
    cells = three.gather.ravel()
    assert len(set(three.scatter.tolist())) == three.positions
    assert cells[three.scatter].tolist() == list(range(three.positions))
    assert (three.row_cells >= 0).sum() == three.positions


def test_a_row_lies_in_one_bin_side_by_side(three: Layout) -> None:
    for row, size in enumerate(three.sizes):
        mine = np.sort(three.scatter[three.row == row])
        assert mine.tolist() == list(range(mine[0], mine[0] + size))
        assert mine[0] // three.width == mine[-1] // three.width
        assert three.place[np.argsort(three.scatter)][
            np.isin(np.sort(three.scatter), mine)
        ].tolist() == list(range(size))


def test_bins_are_as_wide_as_the_longest_row_or_what_makes_products_fast() -> None:
    assert layout([3, 4] * 9, [1, 1] * 9).width == BIN_WIDTH
    assert layout([3, 4], [1, 1]).width == 9
    assert layout([3, 90], [1, 2]).width == 92


@pytest.mark.parametrize(
    ("sizes", "bins"),
    [
        ([5, 5, 5], [[0, 1], [2]]),
        ([2, 9, 1, 8], [[1, 2], [3, 0]]),
        ([10], [[0]]),
        ([10, 10], [[0], [1]]),
    ],
)
def test_the_longest_rows_are_placed_first(sizes: list[int], bins: list[list[int]]) -> None:
    assert fill_bins(sizes, 10) == bins


def seen(one: Layout, sight: Sight, counted: np.ndarray | None = None) -> set[tuple[int, int]]:
    """Which position sees which."""
    every = np.ones(one.positions, dtype=bool)
    bias = one.bias(sight, every if counted is None else counted)[:, 0]
    assert set(np.unique(bias).tolist()) <= {0.0, np.float32(LOWEST)}
    pairs = set()
    bins, width = one.gather.shape
    for index in range(bins):
        for left in range(width):
            for right in range(width):
                real = one.row_cells[index, left] >= 0 and one.row_cells[index, right] >= 0
                if real and bias[index, left, right] == 0:
                    pairs.add((int(one.gather[index, left]), int(one.gather[index, right])))
    return pairs


def test_rows_of_a_bin_do_not_see_each_other(three: Layout) -> None:
    mine = {(a, b) for a in range(9) for b in range(9) if three.row[a] == three.row[b]}
    assert seen(three, Sight()) == mine


def test_causal_places_see_those_before_them(three: Layout) -> None:
    assert seen(three, Sight(causal=True)) == {
        (a, b)
        for a in range(9)
        for b in range(9)
        if three.row[a] == three.row[b] and three.place[a] >= three.place[b]
    }


def test_a_window_counts_the_place_itself(three: Layout) -> None:
    assert seen(three, Sight(causal=True, window=2)) == {
        (a, b)
        for a in range(9)
        for b in range(9)
        if three.row[a] == three.row[b] and 0 <= three.place[a] - three.place[b] < 2
    }


def test_slots_that_do_not_count_yet_are_not_seen(three: Layout) -> None:
    counted = np.ones(9, dtype=bool)
    counted[[1, 2]] = False
    pairs = seen(three, Sight(), counted)
    assert not any(b in (1, 2) for _, b in pairs)
    assert {(0, 0), (0, 3), (3, 0), (6, 7)} <= pairs


def test_mean_weights_are_of_what_counts_in_each_row(three: Layout) -> None:
    counted = np.array([True, False, False, *[True] * 6])
    weights = three.mean_weights(counted)
    assert weights == pytest.approx([1 / 3, 0, 0, 1 / 3, 1 / 3, 1, 1 / 3, 1 / 3, 1 / 3])
