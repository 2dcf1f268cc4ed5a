"""Composes a frozen backbone with the capsules of a batch."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from capsules.backbones.base import Backbone
from capsules.core import Encoding, Reading, TokenBatch
from capsules.injection import Injection, PromptGroup, Prompts
from capsules.variants.base import Variant


class InjectedBackbone:
    """A backbone whose layers take capsules, one batch at a time; autograd works through it."""

    def __init__(self, backbone: Backbone) -> None:
        self.backbone = backbone

    def features(
        self, tokens: TokenBatch, prompts: Prompts, reading: Reading | None = None
    ) -> Tensor:
        """Run a batch, each row with its own capsule, and read what labels are scored by.

        Args:
            tokens: B rows of up to T tokens, on the backbone's device.
            prompts: the capsules of these rows.
            reading: for backbones that answer in words: what to read, on the same device.

        Returns:
            [B, D], or [M, D] with a reading, in the accumulation dtype.
        """
        tokens = right_padded(tokens)
        embedded = self.backbone.embed(tokens)
        injection = Injection(prompts, tokens.attention_mask, embedded.dtype)
        empty = embedded.new_zeros(len(tokens), prompts.slots, embedded.shape[2])
        hidden = self.backbone.run(torch.cat((empty, embedded), dim=1), injection)
        return self.backbone.read(hidden, injection.ends, reading)


def right_padded(tokens: TokenBatch) -> TokenBatch:
    """The same rows, padded on the right, so that every capsule stands right before its text."""
    mask = tokens.attention_mask
    if not bool((mask[:, 1:] & ~mask[:, :-1]).any()):
        return tokens
    order = mask.int().argsort(dim=1, descending=True, stable=True)
    return TokenBatch(
        input_ids=tokens.input_ids.gather(1, order), attention_mask=mask.gather(1, order)
    )


def pad(encodings: Sequence[Encoding], pad_id: int) -> TokenBatch:
    """Right-pad rows to the longest of them, on the CPU."""
    lengths = np.array([len(encoding.input_ids) for encoding in encodings])
    mask = np.arange(lengths.max()) < lengths[:, None]
    input_ids = np.full(mask.shape, pad_id, dtype=np.int64)
    for row, encoding in enumerate(encodings):
        input_ids[row, : lengths[row]] = encoding.input_ids
    return TokenBatch(input_ids=torch.from_numpy(input_ids), attention_mask=torch.from_numpy(mask))


def shared_prompts(
    variant: Variant,
    length: int,
    layers: tuple[int, ...],
    tensors: Mapping[str, Tensor],
    rows: int,
) -> Prompts:
    """One capsule for every row of a batch; under autograd the rows' gradients add up in it.

    Args:
        variant: of the capsule.
        length: of the capsule.
        layers: indices of the layers injected, from 0.
        tensors: learned tensors, each [injections, ...]; those of the head are left out.
        rows: B.
    """
    expanded = {
        name: tensor.unsqueeze(0).expand(rows, *tensor.shape)
        for name, tensor in tensors.items()
        if not name.startswith("head.")
    }
    return Prompts((PromptGroup(variant, length, layers, expanded),))
