"""The one mechanism that serves every family: rewrite the capsule slots on entry of each layer.

Knows nothing of families, tasks or files: it is told which learned tensors belong to which rows,
and a family's loop over its layers asks it, layer by layer, what goes in.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from capsules.backbones.ends import Ends, PaddedEnds
from capsules.functional import pool_weights, replace_slots
from capsules.variants.base import Variant
from capsules.variants.pool import Pool


@dataclass(frozen=True, slots=True)
class PromptGroup:
    """Rows of one batch whose capsules have the same variant, length and layers.

    Attributes:
        variant: how their tokens are formed.
        length: of the capsules.
        layers: indices of the I layers injected, from 0, ascending.
        tensors: the learned tensors by name, each [b, I, ...], one per row.
        rows: [b] int64 positions of these rows in the batch; None when they are all of it,
            in order.
    """

    variant: Variant
    length: int
    layers: tuple[int, ...]
    tensors: Mapping[str, Tensor]
    rows: Tensor | None = None

    @property
    def slots(self) -> int:
        """Positions each of these rows takes."""
        return self.variant.slots(self.length)

    def prompt(self, pool: Pool, injection: int) -> Tensor:
        """The tokens that enter one of the injected layers, [b, slots, D].

        Args:
            pool: of all the batch's rows.
            injection: which of :attr:`layers`.
        """
        tensors = {name: tensor[:, injection] for name, tensor in self.tensors.items()}
        mine = pool if self.rows is None else pool.of(self.rows)
        return self.variant.prompt(tensors, mine, self.length)


@dataclass(frozen=True, slots=True)
class Prompts:
    """The capsules of one batch; rows in no group run on the bare backbone."""

    groups: tuple[PromptGroup, ...] = ()

    @property
    def slots(self) -> int:
        """K, the positions the batch reserves: the longest capsule's."""
        return max((group.slots for group in self.groups), default=0)

    def slot_mask(self, rows: int, device: torch.device, before: int | None = None) -> Tensor:
        """[B, K] bool, True where a row uses a slot.

        Shorter capsules leave the first ones unused, so that every capsule stands right before its
        text: distances, which relative positions and windows are made of, are as they are alone.

        Args:
            rows: B.
            device: where the mask is wanted.
            before: count only capsules whose first layer's index is below this; None counts all.
        """
        slots = self.slots
        mask = torch.zeros(rows, slots, dtype=torch.bool, device=device)
        for group in self.groups:
            if before is not None and group.layers[0] >= before:
                continue
            if group.rows is None:
                mask[:, slots - group.slots :] = True
            else:
                mask[group.rows, slots - group.slots :] = True
        return mask


class Injection:
    """One forward pass, as the layers see it.

    A capsule is part of the sequence from its first layer on. Before that its slots are there, but
    no position attends to them and no mean counts them.
    """

    def __init__(self, prompts: Prompts, token_mask: Tensor, dtype: torch.dtype) -> None:
        """Prepare a pass.

        Args:
            prompts: the batch's capsules.
            token_mask: [B, T] bool, True on real tokens.
            dtype: of the hidden states.
        """
        assert (
            all(group.rows is not None for group in prompts.groups) or len(prompts.groups) == 1
        ), "a group of all rows stands alone"
        self.prompts = prompts
        self.slots = prompts.slots
        self.firsts = sorted({group.layers[0] for group in prompts.groups})
        # Masks between one first layer and the next: tokens only, then with more and more capsules.
        self.masks = [
            torch.cat(
                (prompts.slot_mask(len(token_mask), token_mask.device, before), token_mask), dim=1
            )
            for before in (0, *(first + 1 for first in self.firsts))
        ]
        self.weights = [pool_weights(mask, dtype) for mask in self.masks] if self.firsts else []

    def mask(self, layer: int) -> Tensor:
        """[B, K + T] bool, what positions of a layer may be attended to.

        It is the same object as long as nothing changes.
        """
        return self.masks[bisect_right(self.firsts, layer)]

    @property
    def last_mask(self) -> Tensor:
        """[B, K + T] bool, the real tokens and every slot used: what is there after all layers."""
        return self.masks[-1]

    @property
    def positions(self) -> Tensor:
        """[B, K + T] int64, each place's number among the real tokens and used slots of its row."""
        return (self.last_mask.cumsum(dim=1) - 1).clamp(min=0)

    @property
    def ends(self) -> Ends:
        """Reads the rows after the last layer."""
        return PaddedEnds(self.last_mask)

    def enter(self, layer: int, hidden: Tensor) -> Tensor:
        """``[S^i ; H^{i-1}]`` for layer i = layer + 1, each row with its own capsule.

        Args:
            layer: index of the layer, from 0.
            hidden: [B, K + T, D] the layer's input, whose slots hold ``S_^{i-1}`` where there is
                one.

        Returns:
            [B, K + T, D] with the slots replaced of the rows that are injected here.
        """
        groups = [group for group in self.prompts.groups if layer in group.layers]
        if not groups:
            return hidden
        pool = Pool(hidden, self.weights[bisect_left(self.firsts, layer)])
        if groups[0].rows is None:
            return replace_slots(hidden, groups[0].prompt(pool, groups[0].layers.index(layer)))
        prompts = hidden[:, : self.slots].clone()
        for group in groups:
            prompt = group.prompt(pool, group.layers.index(layer)).to(hidden.dtype)
            prompts[group.rows, self.slots - group.slots :] = prompt
        return replace_slots(hidden, prompts)
