"""How the rows of a batch attend: padded, as transformers has it, or packed into one sequence."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

PACKED = "capsule_packed"
"""What the attention that takes :class:`Bins` is called in transformers."""

Attend = Callable[[Tensor, Tensor, Tensor, Tensor, int, int, float], Tensor]
"""Attention of [G, W, heads * width] queries, keys and values under a bias [G, 1 or heads, W, W]."""


@dataclass(frozen=True, slots=True)
class Sight:
    """Which places of its row a place may attend to.

    Attributes:
        causal: only those up to itself.
        window: only those closer than this, itself included; None for any distance.
    """

    causal: bool = False
    window: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Bins:
    """Where the attention of a packed batch takes place: its P positions, laid out in G bins of W.

    A row lies in one bin, its places side by side; rows that share a bin do not see each other.

    Attributes:
        gather: [G, W] int64, the position in each cell; any where a cell is empty.
        scatter: [P] int64, the cell of each position, counted through all bins.
        bias: [G, 1, W, W], 0 where a cell (the third axis) may attend to another, else so low that
            its share is 0.
        attend: computes attention.
    """

    gather: Tensor
    scatter: Tensor
    bias: Tensor
    attend: Attend


def visible(
    make: Callable[..., Tensor | None], config: Any, hidden: Tensor, mask: Tensor | Bins
) -> Tensor | Bins | None:
    """What a layer's attention is told of who sees whom.

    Args:
        make: transformers' way of making it for padded rows.
        config: of the model.
        hidden: [B, S, D], for its shape and dtype.
        mask: [B, S] bool, the places that may be attended to; bins say it all themselves.
    """
    if isinstance(mask, Bins):
        return mask
    return make(config=config, inputs_embeds=hidden, attention_mask=mask)


def attend_densely(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor, heads: int, groups: int, scale: float
) -> Tensor:
    """``softmax(q k^T scale + bias) v`` for each head, [G, W, heads * width].

    Args:
        query: [G, W, heads * width].
        key: [G, W, groups * width].
        value: [G, W, groups * width].
        bias: [G, 1 or heads, W, W].
        heads: of the queries.
        groups: heads of keys and values, each for the same number of the queries'.
        scale: of the scores.
    """

    def split(states: Tensor, parts: int) -> Tensor:
        apart: Tensor = states.unflatten(2, (parts, -1)).transpose(1, 2)
        return apart.repeat_interleave(heads // parts, dim=1)

    scores = torch.matmul(split(query, heads) * scale, split(key, groups).transpose(2, 3)) + bias
    mixed = torch.matmul(scores.softmax(dim=3), split(value, groups))
    return mixed.transpose(1, 2).flatten(2)


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | Bins | None,
    *,
    scaling: float,
    position_bias: Tensor | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attention as transformers' layers call it, of one sequence [1, heads, P, width] in bins.

    Where rows are padded, as a decoder's beside a packed encoder, it is the usual one.
    """
    if not isinstance(attention_mask, Bins):
        return sdpa_attention_forward(
            module,
            query,
            key,
            value,
            attention_mask,
            scaling=scaling,
            position_bias=position_bias,
            **options,
        )
    bins = attention_mask
    count, width = bins.gather.shape
    heads, groups = query.shape[1], key.shape[1]

    def spread(states: Tensor) -> Tensor:
        positions = states.transpose(1, 2).flatten(2).squeeze(0)
        return positions.index_select(0, bins.gather.flatten()).view(count, width, -1)

    bias = bins.bias if position_bias is None else bins.bias + position_bias
    mixed = bins.attend(spread(query), spread(key), spread(value), bias, heads, groups, scaling)
    back = mixed.flatten(0, 1).index_select(0, bins.scatter)
    return back.view(1, back.shape[0], heads, -1), None


@contextmanager
def packing(model: PreTrainedModel) -> Iterator[None]:
    """Have a model's layers take :class:`Bins`; they still take the masks of padded rows."""
    AttentionInterface.register(PACKED, packed_attention)
    AttentionMaskInterface.register(PACKED, sdpa_mask)
    usual = model.config._attn_implementation
    model.set_attn_implementation(PACKED)
    try:
        yield
    finally:
        model.set_attn_implementation(usual)
