"""Everything that a packed pass is computed from, as arrays."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import DTypeLike
from torch import Tensor

from capsules.backbones.attention import Sight
from capsules.backbones.base import Backbone
from capsules.core import Reading, TokenBatch
from capsules.injection import PromptGroup, Prompts
from capsules.packing.layout import Ints, Layout
from capsules.packing.plan import Array, Feed, Members, Plan, concatenated
from capsules.variants.terms import KERNEL, RANK, Terms

KEPT_FRAMES = 512
"""Frames kept of single rows: one for each length of text and kind of capsule that comes again."""

KEPT_POSITIONS = 96
"""Longest row whose frame is kept, so that all of them take a few tens of megabytes at most."""


class Packer:
    """Turns batches into feeds for one backbone, in any thread.

    Symbols as in :class:`capsules.packing.plan.Plan`; N layers.
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
        # A row by itself is what a single caller waits for, and its shape is seldom new.
        self.kept_frame = lru_cache(maxsize=KEPT_FRAMES)(self.single_frame)
        self.nothing_special: Feed = {"special": np.array(False), **self.weights([], [])}

    def pack(self, tokens: TokenBatch, prompts: Prompts, reading: Reading | None = None) -> Feed:
        """The inputs of a pass.

        Args:
            tokens: B rows, padded on either side, on the CPU.
            prompts: their capsules, on the CPU.
            reading: for backbones that answer in words: what to read, on the CPU.
        """
        mask = tokens.attention_mask.numpy()
        learned = [Learned.of(group, len(tokens)) for group in prompts.groups]
        plan, frame = self.frame(mask.sum(axis=1), [one.members for one in learned])
        return {
            **frame,
            "ids": tokens.input_ids.numpy()[mask][None],
            "vectors": self.vectors(plan, learned),
            **self.special(plan, learned),
            **self.reading(len(tokens), reading),
        }

    def frame(self, lengths: Ints, members: Sequence[Members]) -> tuple[Plan, Feed]:
        """The plan of a batch, and the part of its feed that the plan alone decides."""
        if len(lengths) == 1:
            kinds = [(one.layers, one.shares) for one in members]
            positions = int(lengths[0]) + sum(len(shares) for _, shares in kinds)
            if positions <= KEPT_POSITIONS:
                return self.kept_frame(int(lengths[0]), *kinds)
        return self.new_frame(lengths, members)

    def single_frame(
        self, length: int, *kinds: tuple[tuple[int, ...], tuple[int, ...]]
    ) -> tuple[Plan, Feed]:
        """The same for one row.

        Args:
            length: tokens of its text.
            kinds: layers and shares of its capsule, if it has one.
        """
        row = np.zeros(1, dtype=np.int64)
        plan, feed = self.new_frame(np.array([length]), [Members(row, *kind) for kind in kinds])
        for kept in feed.values():
            kept.setflags(write=False)  # many passes have it, in any threads
        return plan, feed

    def new_frame(self, lengths: Ints, members: Sequence[Members]) -> tuple[Plan, Feed]:
        """:meth:`frame`, made anew."""
        plan = Plan(lengths, members, self.sights, self.dtype)
        return plan, {**plan.feed(), **self.ends(plan.layout)}

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

    def vectors(self, plan: Plan, learned: Sequence["Learned"]) -> Array:
        """[N, C, D] the constant part of what enters each slot at each layer.

        It may be the prompts' own memory, which is not to be changed before the pass is run.
        """
        shape = (len(self.sights), plan.layout.capsules, self.hidden_size)
        constants = [
            (one.members, array(one.terms.constant).swapaxes(0, 1))
            for one in learned
            if one.terms.constant is not None
        ]
        if len(learned) == len(constants) == 1:
            ((members, constant),) = constants
            in_order = np.array_equal(members.rows, np.arange(len(plan.layout.lengths)))
            if in_order and constant.size == math.prod(shape):
                # One kind for all rows and layers, as there mostly is: nothing is to be placed.
                return np.ascontiguousarray(constant, self.dtype).reshape(shape)
        found = np.zeros(shape, dtype=self.dtype)
        for members, constant in constants:
            layers = np.array(members.layers)
            constant = constant.reshape(len(layers), -1, self.hidden_size)
            found[layers[:, None], plan.slots_of(members).ravel()] = constant
        return found

    def special(self, plan: Plan, learned: Sequence["Learned"]) -> Feed:
        """The terms that few variants have: the convolutions of E rows, the maps of R rows.

        Weights [N, E, K, D], and [N, R, rank, D] with [N, R, D, rank].
        """
        tapped = [one for one in learned if one.terms.taps is not None]
        mapped = [one for one in learned if one.terms.down is not None]
        if not (tapped or mapped):
            return self.nothing_special
        return {
            "special": np.array(True),
            **plan.tapped(concatenated([one.members.rows for one in tapped])),
            **plan.mapped(concatenated([one.members.rows for one in mapped])),
            **self.weights(tapped, mapped),
        }

    def weights(self, tapped: Sequence["Learned"], mapped: Sequence["Learned"]) -> Feed:
        """What the convolutions and the low-rank maps of some rows have learned."""
        return {
            "taps": self.by_layer(
                [(one.members, one.terms.taps) for one in tapped], (KERNEL, self.hidden_size)
            ),
            "down": self.by_layer(
                [(one.members, one.terms.down) for one in mapped], (RANK, self.hidden_size)
            ),
            "up": self.by_layer(
                [(one.members, one.terms.up) for one in mapped], (self.hidden_size, RANK)
            ),
        }

    def by_layer(
        self, parts: Sequence[tuple[Members, Tensor | None]], shape: tuple[int, ...]
    ) -> Array:
        """[N, rows, ...] tensors of some rows' injections, zero where they are not injected."""
        rows = sum(len(members.rows) for members, _ in parts)
        found = np.zeros((len(self.sights), rows, *shape), dtype=self.dtype)
        start = 0
        for members, tensor in parts:
            assert tensor is not None, "only rows that have this term"
            end = start + len(members.rows)
            found[list(members.layers), start:end] = array(tensor).swapaxes(0, 1)
            start = end
        return found

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


@dataclass(frozen=True, slots=True)
class Learned:
    """What a group of rows has learned.

    Attributes:
        members: the rows.
        terms: of all their injections; tensors [b, I, ...].
    """

    members: Members
    terms: Terms

    @classmethod
    def of(cls, group: PromptGroup, rows: int) -> "Learned":
        """What a group in a batch of `rows` has learned."""
        mine = np.arange(rows) if group.rows is None else group.rows.numpy()
        terms = group.variant.terms(group.tensors, group.length)
        return cls(Members(mine, group.layers, terms.shares), terms)


def array(tensor: Tensor) -> Array:
    """A tensor's values, without a copy."""
    found: Array = tensor.detach().numpy()
    return found
