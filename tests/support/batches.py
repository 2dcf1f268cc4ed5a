"""Batches of token ids, and the capsules of their rows, made by hand."""

from collections.abc import Sequence

import torch
from torch import Tensor

from capsules.core import TokenBatch
from capsules.injection import PromptGroup, Prompts
from capsules.variants.addition import Addition


def token_batch(
    texts: Sequence[Sequence[int]], pad_id: int, *, width: int | None = None, left: bool = False
) -> TokenBatch:
    """Rows of token ids, padded to the longest or to `width`, on the right or on the left."""
    width = width or max(len(text) for text in texts)
    ids = torch.full((len(texts), width), pad_id)
    mask = torch.zeros(len(texts), width, dtype=torch.bool)
    for row, text in enumerate(texts):
        places = slice(width - len(text), width) if left else slice(len(text))
        ids[row, places] = torch.tensor(text)
        mask[row, places] = True
    return TokenBatch(input_ids=ids, attention_mask=mask)


def addition_prompts(capsules: Sequence[Tensor | None]) -> Prompts:
    """The capsule p [N, k, D] of each row, or None; rows of the same length form a group."""
    lengths = sorted({capsule.shape[1] for capsule in capsules if capsule is not None})
    groups = []
    for length in lengths:
        found = [
            (row, capsule)
            for row, capsule in enumerate(capsules)
            if capsule is not None and capsule.shape[1] == length
        ]
        groups.append(
            PromptGroup(
                variant=Addition(),
                slots=length,
                tensors={"capsule": torch.stack([capsule for _, capsule in found])},
                rows=torch.tensor([row for row, _ in found]),
            )
        )
    return Prompts(tuple(groups))
