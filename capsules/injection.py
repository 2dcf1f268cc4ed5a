"""The one mechanism that serves every family: rewrite the capsule slots on entry of each layer.

Knows nothing of families, tasks or files: it is given a list of layers and, for each forward
pass, which learned tensors belong to which rows.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import finalize, ref

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from capsules.functional import pool_weights, replace_slots
from capsules.variants.base import Variant


@dataclass(frozen=True, slots=True)
class PromptGroup:
    """Rows of one batch whose capsules have the same variant and length.

    Attributes:
        variant: how their tokens are formed.
        slots: positions each of these rows takes.
        tensors: the learned tensors by name, each [b, injections, ...], one per row.
        rows: [b] int64 positions of these rows in the batch; None when they are all of it,
            in order.
    """

    variant: Variant
    slots: int
    tensors: Mapping[str, Tensor]
    rows: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Prompts:
    """The capsules of one batch; rows in no group run on the bare backbone."""

    groups: tuple[PromptGroup, ...] = ()

    @property
    def slots(self) -> int:
        """K, the positions the batch reserves: the longest capsule's."""
        return max((group.slots for group in self.groups), default=0)

    def slot_mask(self, rows: int, device: torch.device) -> Tensor:
        """[B, K] bool, True where a row uses a slot.

        Shorter capsules leave the first ones unused, so that every capsule stands right before its
        text: distances, which relative positions and windows are made of, are as they are alone.
        """
        slots = self.slots
        mask = torch.zeros(rows, slots, dtype=torch.bool, device=device)
        for group in self.groups:
            if group.rows is None:
                mask[:, slots - group.slots :] = True
            else:
                mask[group.rows, slots - group.slots :] = True
        return mask


@dataclass(slots=True)
class Pass:
    """What the hooks need to know during one forward pass.

    Attributes:
        prompts: the batch's capsules.
        first: [B, S] weights of ``Mean(E)``, tokens only.
        later: [B, S] weights of ``Mean(S_ (+) H)``, tokens and the row's own slots.
    """

    prompts: Prompts
    first: Tensor
    later: Tensor
    by_group: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for group in self.prompts.groups:
            if group.rows is None:
                self.by_group.append((self.first, self.later))
            else:
                self.by_group.append((self.first[group.rows], self.later[group.rows]))


class Injector:
    """Forward pre-hooks on a family's layers; inert outside :meth:`active`.

    One thread at a time may run the layers, since the hooks read the pass that is active. The hooks
    come off with the injector, so that a backbone can outlive any number of them.
    """

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        self.current: Pass | None = None
        self.handles = [
            layer.register_forward_pre_hook(hook_for(ref(self), index), with_kwargs=True)
            for index, layer in enumerate(layers)
        ]
        finalize(self, remove, self.handles).atexit = False

    def remove(self) -> None:
        """Take the hooks off the layers again."""
        remove(self.handles)

    @contextmanager
    def active(self, prompts: Prompts, token_mask: Tensor, dtype: torch.dtype) -> Iterator[Tensor]:
        """Inject `prompts` into the forward pass made inside.

        Args:
            prompts: the batch's capsules.
            token_mask: [B, T] bool, True on real tokens.
            dtype: dtype of the hidden states.

        Yields:
            [B, K + T] bool, the attention mask with the slots in front.
        """
        assert self.current is None, "another forward pass is active on this backbone"
        slot_mask = prompts.slot_mask(token_mask.shape[0], token_mask.device)
        mask = torch.cat((slot_mask, token_mask), dim=1)
        tokens_only = torch.cat((torch.zeros_like(slot_mask), token_mask), dim=1)
        if prompts.groups:
            self.current = Pass(
                prompts, pool_weights(tokens_only, dtype), pool_weights(mask, dtype)
            )
        try:
            yield mask
        finally:
            self.current = None


def hook_for(injector: "ref[Injector]", index: int) -> Any:
    """The pre-hook of layer `index`: replaces the slots in the layer's first argument."""

    def hook(
        _layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        alive = injector()
        if alive is None or alive.current is None:
            return None
        hidden = inject(alive.current, args[0], index)
        return (hidden, *args[1:]), kwargs

    return hook


def remove(handles: Iterable[RemovableHandle]) -> None:
    """Take hooks off their modules."""
    for handle in handles:
        handle.remove()


def inject(current: Pass, hidden: Tensor, index: int) -> Tensor:
    """``[S^i ; H^{i-1}]`` for layer i = index + 1, each row with its own capsule.

    Args:
        current: the active pass.
        hidden: [B, K + T, D] the layer's input, whose slots hold ``S_^{i-1}`` (zeros for i = 1).
        index: position of the layer, from 0.

    Returns:
        [B, K + T, D] with the slots replaced.
    """
    groups = current.prompts.groups
    if len(groups) == 1 and groups[0].rows is None:
        return replace_slots(hidden, group_prompt(current, 0, hidden, index))
    slots = current.prompts.slots
    prompts = hidden[:, :slots].clone()
    for position, group in enumerate(groups):
        assert group.rows is not None, "a group of all rows stands alone"
        prompt = group_prompt(current, position, hidden, index).to(hidden.dtype)
        prompts[group.rows, slots - group.slots :] = prompt
    return replace_slots(hidden, prompts)


def group_prompt(current: Pass, position: int, hidden: Tensor, index: int) -> Tensor:
    """The new tokens [b, slots, D] of one group's rows at layer `index`."""
    group = current.prompts.groups[position]
    first, later = current.by_group[position]
    rows = hidden if group.rows is None else hidden[group.rows]
    tensors = {name: tensor[:, index] for name, tensor in group.tensors.items()}
    return group.variant.prompt(tensors, rows, first if index == 0 else later)
