"""Everything that a packed pass is computed from, as arrays."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

from capsules.backbones.attention import Sight
from capsules.backbones.base import Backbone
from capsules.core import Reading, TokenBatch
from capsules.injection import PromptGroup, Prompts
from capsules.packing.layout import Bools, Ints, Layout, Weights
from capsules.variants.terms import KERNEL, RANK, Terms

Array = NDArray[Any]
Feed = dict[str, Array]
"""Inputs of :class:`capsules.packing.graph.PackedGraph` by name."""


class Packer:
    """Turns batches into feeds for one backbone.

    Symbols as in :class:`capsules.packing.layout.Layout`; N layers, C slots in all, U patterns of
    which capsules enter and count at a layer, V patterns of who attends to whom.
    """

    def __init__(self, backbone: Backbone, dtype: DTypeLike = np.float32) -> None:
        """Prepare for a backbone.

        Args:
            backbone: which the feeds are for; one that :attr:`Backbone.packs`.
            dtype: of hidden states and weights.
        """
        assert backbone.packs, "rows cannot be packed for this backbone"
        self.family = backbone.family
        self.sights: Sequence[Sight] = backbone.sights
        self.hidden_size = backbone.hidden_size
        self.dtype = np.dtype(dtype)

    def pack(self, tokens: TokenBatch, prompts: Prompts, reading: Reading | None = None) -> Feed:
        """The inputs of a pass.

        Args:
            tokens: B rows, padded on either side, on the CPU.
            prompts: their capsules, on the CPU.
            reading: for backbones that answer in words: what to read, on the CPU.
        """
        mask = tokens.attention_mask.numpy()
        members = [Members.of(group, len(tokens)) for group in prompts.groups]
        slots = np.zeros(len(tokens), dtype=np.int64)
        for one in members:
            slots[one.rows] = one.group.slots
        layout = Layout(mask.sum(axis=1), slots)
        plan = Plan(layout, members, self.sights, self.hidden_size, self.dtype)
        return {
            "ids": tokens.input_ids.numpy()[mask][None],
            "text_places": layout.text_places[None],
            "places": layout.place[None],
            "vectors": plan.vectors,
            "pool": stacked(plan.pools),
            "pool_of": plan.pool_of,
            "bias": stacked(plan.biases),
            "bias_of": plan.bias_of,
            "gather": layout.gather,
            "scatter": layout.scatter,
            **plan.special(),
            **self.ends(layout),
            **self.reading(len(tokens), reading),
        }

    def ends(self, layout: Layout) -> Feed:
        """What finds the rows in the last layer's states; each family reads them in its way."""
        if self.family == "encoder-only":
            weights = layout.mean_weights(np.ones(layout.positions, dtype=bool))
            return {"mean": layout.owns * weights.astype(self.dtype)}
        if self.family == "decoder-only":
            return {"last": layout.last}
        shape = (len(layout.lengths), int(layout.sizes.max()))
        row_positions = np.zeros(shape, dtype=np.int64)
        row_mask = np.zeros(shape, dtype=bool)
        row_positions[layout.row, layout.place] = np.arange(layout.positions)
        row_mask[layout.row, layout.place] = True
        return {"row_positions": row_positions, "row_mask": row_mask}

    def reading(self, rows: int, reading: Reading | None) -> Feed:
        """Where a decoder that answers in words is run and read."""
        if self.family != "encoder-decoder":
            return {}
        if reading is None:
            # The first word of every row is all there is to decide.
            every = np.arange(rows)
            return {
                "path_rows": every,
                "prefixes": np.empty((rows, 0), dtype=np.int64),
                "read_paths": every,
                "read_steps": np.zeros_like(every),
            }
        return {
            "path_rows": reading.rows.numpy(),
            "prefixes": reading.prefixes.numpy(),
            "read_paths": reading.paths.numpy(),
            "read_steps": reading.steps.numpy(),
        }


@dataclass(frozen=True)
class Members:
    """A group of rows whose capsules are alike, and what their tokens are made of.

    Attributes:
        group: the group.
        rows: [b] their positions in the batch.
        terms: of all their injections; tensors [b, I, ...].
    """

    group: PromptGroup
    rows: Ints
    terms: Terms

    @classmethod
    def of(cls, group: PromptGroup, rows: int) -> "Members":
        """The members of a group in a batch of `rows`."""
        mine = np.arange(rows) if group.rows is None else group.rows.numpy()
        terms = group.variant.terms(group.tensors, group.length)
        return cls(group, mine, terms)

    def state(self, layer: int) -> tuple[bool, bool]:
        """Whether they are injected at a layer, and whether their slots count in its mean."""
        return layer in self.group.layers, self.group.layers[0] < layer


class Plan:
    """What enters and counts at each layer of one packed batch."""

    def __init__(
        self,
        layout: Layout,
        members: Sequence[Members],
        sights: Sequence[Sight],
        hidden_size: int,
        dtype: np.dtype[Any],
    ) -> None:
        self.layout = layout
        self.members = members
        self.sights = sights
        self.hidden_size = hidden_size
        self.dtype = dtype
        rows = len(layout.lengths)
        # Slots are part of the sequence from their capsule's first layer on.
        self.first = np.zeros(rows, dtype=np.int64)
        for one in members:
            self.first[one.rows] = one.group.layers[0]
        patterns: dict[tuple[tuple[bool, bool], ...], int] = {}
        self.pools: list[Array] = []
        # Of each pattern: what counts at its layers, and its shares of their means.
        self.counted: list[Bools] = []
        self.shares: list[Weights] = []
        self.pool_of = np.empty(len(sights), dtype=np.int64)
        for layer in range(len(sights)):
            pattern = tuple(one.state(layer) for one in members)
            if pattern not in patterns:
                patterns[pattern] = len(patterns)
                self.counted.append(self.present(layer))
                self.shares.append(layout.mean_weights(self.counted[-1]))
                self.pools.append(self.pool(layer, self.shares[-1]))
            self.pool_of[layer] = patterns[pattern]
        views: dict[tuple[Sight, int], int] = {}
        self.biases: list[Array] = []
        self.bias_of = np.empty(len(sights), dtype=np.int64)
        for layer, sight in enumerate(sights):
            begun = sum(
                int(one.group.layers[0] <= layer) << index for index, one in enumerate(members)
            )
            if (sight, begun) not in views:
                views[sight, begun] = len(views)
                self.biases.append(layout.bias(sight, self.present(layer + 1)).astype(dtype))
            self.bias_of[layer] = views[sight, begun]

    def present(self, before: int) -> Bools:
        """[P] the tokens, and the slots of capsules whose first layer's index is below `before`."""
        found: Bools = ~self.layout.is_slot | (self.first[self.layout.row] < before)
        return found

    def slots_of(self, one: Members) -> Ints:
        """[b, slots] positions of the slots of a group's rows."""
        found: Ints = self.layout.slot_starts[one.rows][:, None] + np.arange(one.group.slots)
        return found

    @cached_property
    def vectors(self) -> Array:
        """[N, C, D] the constant part of what enters each slot at each layer."""
        shape = (len(self.sights), self.layout.capsules, self.hidden_size)
        found = np.zeros(shape, dtype=self.dtype)
        for one in self.members:
            if one.terms.constant is not None:
                constant = array(one.terms.constant).swapaxes(0, 1)
                constant = constant.reshape(len(one.group.layers), -1, self.hidden_size)
                layers = np.array(one.group.layers)
                found[layers[:, None], self.slots_of(one).ravel()] = constant
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
            if layer in one.group.layers:
                shares[slots] = one.terms.shares
            else:
                kept[slots] = True
        weights = means.astype(self.dtype)
        mine = layout.owns[layout.row[: layout.capsules]]
        found: Array = mine * weights
        found *= shares[:, None]
        found[kept, np.flatnonzero(kept)] = 1.0
        return found

    def special(self) -> Feed:
        """The terms that few variants have: taps and low-rank maps, of E and R rows."""
        tapped = [one for one in self.members if one.terms.taps is not None]
        mapped = [one for one in self.members if one.terms.down is not None]
        return {
            "special": np.array(bool(tapped or mapped)),
            **self.taps(tapped),
            **self.maps(mapped),
        }

    def taps(self, tapped: Sequence[Members]) -> Feed:
        """The convolutions: weights [N, E, K, D] of means [U, E K, P], for slots [C, E]."""
        rows = concatenated([one.rows for one in tapped])
        places = self.layout.place
        windows = []
        for counted_in, weights in zip(self.counted, self.shares, strict=True):
            window = np.zeros((len(rows), KERNEL, self.layout.positions), dtype=self.dtype)
            for index, row in enumerate(rows):
                mine = np.flatnonzero(counted_in & (self.layout.row == row))
                # In the order of the row: its slots, where they count, right before its text.
                mine = mine[np.argsort(places[mine])]
                for tap in range(KERNEL):
                    offset = tap - KERNEL // 2
                    # What stands at this offset from some counted place, within the counted ones.
                    seen = mine[max(offset, 0) : len(mine) + min(offset, 0)]
                    window[index, tap, seen] = weights[seen]
            windows.append(window.reshape(len(rows) * KERNEL, self.layout.positions))
        return {
            "taps": self.by_layer(
                [(one, one.terms.taps) for one in tapped], (KERNEL, self.hidden_size)
            ),
            "tap_pool": np.stack(windows),
            "tap_slots": self.owned(rows),
        }

    def maps(self, mapped: Sequence[Members]) -> Feed:
        """The low-rank maps: [N, R, rank, D] and [N, R, D, rank] of means [U, R, P]."""
        rows = concatenated([one.rows for one in mapped])
        means = [self.layout.owns[rows] * weights for weights in self.shares]
        return {
            "down": self.by_layer(
                [(one, one.terms.down) for one in mapped], (RANK, self.hidden_size)
            ),
            "up": self.by_layer([(one, one.terms.up) for one in mapped], (self.hidden_size, RANK)),
            "map_pool": np.stack(means).astype(self.dtype),
            "map_slots": self.owned(rows),
        }

    def by_layer(
        self, parts: Sequence[tuple[Members, Tensor | None]], shape: tuple[int, ...]
    ) -> Array:
        """[N, rows, ...] tensors of some groups' injections, zero where they are not injected."""
        rows = sum(len(one.rows) for one, _ in parts)
        found = np.zeros((len(self.sights), rows, *shape), dtype=self.dtype)
        start = 0
        for one, tensor in parts:
            assert tensor is not None, "only groups that have this term"
            end = start + len(one.rows)
            found[list(one.group.layers), start:end] = array(tensor).swapaxes(0, 1)
            start = end
        return found

    def owned(self, rows: Ints) -> Array:
        """[C, rows] 1 where a slot belongs to a row."""
        found: Array = (self.layout.row[: self.layout.capsules, None] == rows).astype(self.dtype)
        return found


def stacked(parts: Sequence[Array]) -> Array:
    """Arrays under one more axis; a single one, as there mostly is, without a copy."""
    return parts[0][None] if len(parts) == 1 else np.stack(parts)


def array(tensor: Tensor) -> Array:
    """A tensor's values, without a copy."""
    found: Array = tensor.detach().numpy()
    return found


def concatenated(parts: Sequence[Ints]) -> Ints:
    """Indices of several groups, one after the other; there may be none."""
    return np.concatenate([*parts, np.empty(0, dtype=np.int64)])
