"""Where each position of a packed batch belongs, and where it attends."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from capsules.backbones.attention import Sight

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float32]
Weights = NDArray[np.float64]

LOWEST = -1e9
"""The bias that leaves no share in a softmax; finite, so that a cell without any stays finite."""

BIN_WIDTH = 32
"""Least places of a bin: short rows share one, since small products of matrices are slow."""


def fill_bins(sizes: Sequence[int], width: int) -> list[list[int]]:
    """Put rows into as few bins as first-fit finds, the longest first.

    Args:
        sizes: places of each row, at most `width`.
        width: of a bin.
    """
    bins: list[list[int]] = []
    free: list[int] = []
    for row in sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True):
        size = sizes[row]
        for index, room in enumerate(free):
            if room >= size:
                bins[index].append(row)
                free[index] -= size
                break
        else:
            bins.append([row])
            free.append(width - size)
    return bins


class Layout:
    """B rows in one sequence of P positions: all slots row by row, then all texts row by row.

    A row's places count its slots first, then its tokens.

    Attributes:
        lengths: [B] tokens of each row.
        slots: [B] slots of each row.
        tokens: T, of all rows.
        positions: P, of all rows.
        row: [P] the row of each position.
        place: [P] its place in that row.
        is_slot: [P] whether it is a slot.
    """

    def __init__(self, lengths: Ints, slots: Ints) -> None:
        """Lay rows out.

        Args:
            lengths: [B] tokens of each row, at least 1.
            slots: [B] slots of each row.
        """
        self.lengths = lengths
        self.slots = slots
        self.capsules = int(slots.sum())
        self.tokens = int(lengths.sum())
        self.positions = self.capsules + self.tokens
        rows = np.arange(len(lengths))
        self.row = np.concatenate((np.repeat(rows, slots), np.repeat(rows, lengths)))
        self.place = np.concatenate((counted(slots), counted(lengths) + np.repeat(slots, lengths)))
        self.is_slot = np.arange(self.positions) < self.capsules

    @cached_property
    def sizes(self) -> Ints:
        """[B] places of each row."""
        return self.lengths + self.slots

    @cached_property
    def owns(self) -> Bools:
        """[B, P] whether a position is a row's."""
        found: Bools = np.arange(len(self.lengths))[:, None] == self.row
        return found

    @cached_property
    def text_places(self) -> Ints:
        """[T] each token's place in its text."""
        return counted(self.lengths)

    @cached_property
    def slot_starts(self) -> Ints:
        """[B] position of each row's first slot."""
        return np.cumsum(self.slots) - self.slots

    @cached_property
    def last(self) -> Ints:
        """[B] position of each row's last token."""
        return self.capsules + np.cumsum(self.lengths) - 1

    @cached_property
    def width(self) -> int:
        """W, places of a bin."""
        return max(int(self.sizes.max()), min(BIN_WIDTH, self.positions))

    @cached_property
    def bins(self) -> list[list[int]]:
        """The rows in each of the G bins."""
        return fill_bins(self.sizes.tolist(), self.width)

    @cached_property
    def scatter(self) -> Ints:
        """[P] the cell of each position, counted through all bins."""
        starts = np.empty(len(self.lengths), dtype=np.int64)
        for index, rows in enumerate(self.bins):
            cell = index * self.width
            for row in rows:
                starts[row] = cell
                cell += self.sizes[row]
        return starts[self.row] + self.place

    @cached_property
    def gather(self) -> Ints:
        """[G, W] the position in each cell; 0 where it is empty."""
        return self.in_cells(np.arange(self.positions), 0)

    def in_cells(self, values: Ints, empty: int) -> Ints:
        """[G, W] a value of each position, in its cell.

        Args:
            values: [P].
            empty: what empty cells get.
        """
        cells = np.full(len(self.bins) * self.width, empty, dtype=np.int64)
        cells[self.scatter] = values
        return cells.reshape(len(self.bins), self.width)

    @cached_property
    def row_cells(self) -> Ints:
        """[G, W] the row in each cell, -1 where it is empty."""
        return self.in_cells(self.row, -1)

    @cached_property
    def place_cells(self) -> Ints:
        """[G, W] the place in each cell."""
        return self.in_cells(self.place, 0)

    def bias(self, sight: Sight, counted_in: Bools) -> Floats:
        """[G, 1, W, W] what is added to the scores of each pair of cells: 0 or :data:`LOWEST`.

        Args:
            sight: how the layer attends.
            counted_in: [P] the positions that may be attended to.
        """
        rows = self.row_cells
        allowed = rows[:, :, None] == rows[:, None, :]
        if not counted_in.all():
            allowed &= self.in_cells(counted_in.astype(np.int64), 1).astype(bool)[:, None, :]
        if sight.causal:
            distance = self.place_cells[:, :, None] - self.place_cells[:, None, :]
            allowed &= distance >= 0
            if sight.window is not None:
                allowed &= distance < sight.window
        return np.where(allowed, np.float32(0.0), np.float32(LOWEST))[:, None]

    def mean_weights(self, counted_in: Bools) -> Weights:
        """[P] 1 / (number of the row's positions that count) where one counts, else 0.

        Args:
            counted_in: [P] the positions that count, at least one a row.
        """
        counts = np.bincount(self.row, weights=counted_in, minlength=len(self.lengths))
        weights: Weights = counted_in / counts[self.row]
        return weights


def counted(sizes: Ints) -> Ints:
    """0, 1, ... up to each of the sizes, one after the other."""
    starts = np.cumsum(sizes) - sizes
    total = int(sizes.sum())
    found: Ints = np.arange(total) - np.repeat(starts, sizes)
    return found
