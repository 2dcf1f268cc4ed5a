"""What enters and counts at each layer of a packed batch, whatever the capsules have learned."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capsules.backbones.attention import Sight
from capsules.packing.layout import Bools, Ints, Layout, Weights
from capsules.variants.terms import KERNEL

Array = NDArray[Any]
Feed = dict[str, Array]
"""Inputs of :class:`capsules.packing.graph.PackedGraph` by name."""


@dataclass(frozen=True, slots=True)
class Members:
    """Rows of a batch whose capsules enter the same layers in the same way.

    Attributes:
        rows: [b] their positions in the batch.
        layers: indices of the layers injected, from 0, ascending.
        shares: for each slot that such a row has, whether the mean is in it: 0 or 1.
    """

    rows: Ints
    layers: tuple[int, ...]
    shares: tuple[int, ...]

    def state(self, layer: int) -> tuple[bool, bool]:
        """Whether they are injected at a layer, and whether their slots count in its mean."""
        return layer in self.layers, self.layers[0] < layer


class Plan:
    """What is the same for all batches of one shape.

    Symbols as in :class:`capsules.packing.layout.Layout`; C slots in all, U patterns of which
    capsules enter and count at a layer, V patterns of who attends to whom.

    Attributes:
        layout: of the rows.
        pool_of: [N] the pattern of each layer.
        counted: for each pattern [P] what counts at its layers.
        shares: for each pattern [P] the share of each position in its row's mean.
    """

    def __init__(
        self,
        lengths: Ints,
        members: Sequence[Members],
        sights: Sequence[Sight],
        dtype: np.dtype[Any],
    ) -> None:
        """Plan a batch.

        Args:
            lengths: [B] tokens of each row.
            members: all rows that have a capsule.
            sights: how each of the N layers attends.
            dtype: of hidden states and weights.
        """
        slots = np.zeros(len(lengths), dtype=np.int64)
        # Slots are part of the sequence from their capsule's first layer on.
        self.first = np.zeros(len(lengths), dtype=np.int64)
        for one in members:
            slots[one.rows] = len(one.shares)
            self.first[one.rows] = one.layers[0]
        self.layout = Layout(lengths, slots)
        self.members = members
        self.sights = sights
        self.dtype = dtype
        patterns: dict[tuple[tuple[bool, bool], ...], int] = {}
        self.counted: list[Bools] = []
        self.shares: list[Weights] = []
        self.pools: list[Array] = []
        self.pool_of = np.empty(len(sights), dtype=np.int64)
        for layer in range(len(sights)):
            pattern = tuple(one.state(layer) for one in members)
            if pattern not in patterns:
                patterns[pattern] = len(patterns)
                self.counted.append(self.present(layer))
                self.shares.append(self.layout.mean_weights(self.counted[-1]))
                self.pools.append(self.pool(layer, self.shares[-1]))
            self.pool_of[layer] = patterns[pattern]

    def feed(self) -> Feed:
        """The part of a feed that every batch of this shape has."""
        layout = self.layout
        return {
            "text_places": layout.text_places[None],
            "places": layout.place[None],
            "pool": stacked(self.pools),
            "pool_of": self.pool_of,
            "gather": layout.gather,
            "scatter": layout.scatter,
            **self.views(),
            **self.plain(),
        }

    def views(self) -> Feed:
        """Who attends to whom: a bias for each of V patterns, and the pattern of each layer."""
        numbers: dict[tuple[Sight, int], int] = {}
        biases: list[Array] = []
        bias_of = np.empty(len(self.sights), dtype=np.int64)
        for layer, sight in enumerate(self.sights):
            begun = sum(
                int(one.layers[0] <= layer) << index for index, one in enumerate(self.members)
            )
            if (sight, begun) not in numbers:
                numbers[sight, begun] = len(numbers)
                bias = self.layout.bias(sight, self.present(layer + 1))
                biases.append(bias.astype(self.dtype, copy=False))
            bias_of[layer] = numbers[sight, begun]
        return {"bias": stacked(biases), "bias_of": bias_of}

    def plain(self) -> Feed:
        """What stands for the rows that are :meth:`tapped` and :meth:`mapped` where there are none."""
        none = concatenated([])
        return {**self.tapped(none), **self.mapped(none)}

    def present(self, before: int) -> Bools:
        """[P] the tokens, and the slots of capsules whose first layer's index is below `before`."""
        found: Bools = ~self.layout.is_slot | (self.first[self.layout.row] < before)
        return found

    def slots_of(self, one: Members) -> Ints:
        """[b, slots] positions of the slots of some rows."""
        starts = self.layout.slot_starts[one.rows]
        found: Ints = starts[:, None] + np.arange(len(one.shares))
        return found

    def pool(self, layer: int, means: Weights) -> Array:
        """[C, P] the share of each position in what enters each slot: the mean, or the slot itself.

        Args:
            layer: index of the layer.
            means: [P] the share of each position in its row's mean there.
        """
        layout = self.layout
        shares = np.zeros(layout.capsules, dtype=self.dtype)
        kept = np.zeros(layout.capsules, dtype=bool)
        for one in self.members:
            slots = self.slots_of(one)
            if layer in one.layers:
                shares[slots] = one.shares
            else:
                kept[slots] = True
        weights = means.astype(self.dtype)
        mine = layout.owns[layout.row[: layout.capsules]]
        found: Array = mine * weights
        found *= shares[:, None]
        found[kept, np.flatnonzero(kept)] = 1.0
        return found

    def tapped(self, rows: Ints) -> Feed:
        """Where the convolutions of E rows look: means [U, E K, P], for slots [C, E].

        Args:
            rows: [E] of the batch.
        """
        places = self.layout.place
        shape = (len(self.counted), len(rows), KERNEL, self.layout.positions)
        windows = np.zeros(shape, dtype=self.dtype)
        for window, counted_in, weights in zip(windows, self.counted, self.shares, strict=True):
            for index, row in enumerate(rows):
                mine = np.flatnonzero(counted_in & (self.layout.row == row))
                # In the order of the row: its slots, where they count, right before its text.
                mine = mine[np.argsort(places[mine])]
                for tap in range(KERNEL):
                    offset = tap - KERNEL // 2
                    # What stands at this offset from some counted place, within the counted ones.
                    seen = mine[max(offset, 0) : len(mine) + min(offset, 0)]
                    window[index, tap, seen] = weights[seen]
        return {
            "tap_pool": windows.reshape(shape[0], len(rows) * KERNEL, shape[3]),
            "tap_slots": self.owned(rows),
        }

    def mapped(self, rows: Ints) -> Feed:
        """What the low-rank maps of R rows are applied to: means [U, R, P], for slots [C, R].

        Args:
            rows: [R] of the batch.
        """
        mine = self.layout.owns[rows]
        return {
            "map_pool": (mine * np.stack(self.shares)[:, None]).astype(self.dtype),
            "map_slots": self.owned(rows),
        }

    def owned(self, rows: Ints) -> Array:
        """[C, rows] 1 where a slot belongs to a row."""
        found: Array = (self.layout.row[: self.layout.capsules, None] == rows).astype(self.dtype)
        return found


def stacked(parts: Sequence[Array]) -> Array:
    """Arrays under one more axis; a single one, as there mostly is, without a copy."""
    return parts[0][None] if len(parts) == 1 else np.stack(parts)


def concatenated(parts: Sequence[Ints]) -> Ints:
    """Indices of several groups, one after the other; there may be none."""
    return np.concatenate([*parts, np.empty(0, dtype=np.int64)])
