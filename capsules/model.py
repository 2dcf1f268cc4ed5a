"""Composes a frozen backbone with the capsules of a batch."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from capsules.backbones.base import Backbone
from capsules.core import Encoding, TokenBatch
from capsules.injection import Injector, PromptGroup, Prompts
from capsules.variants.base import Variant


class InjectedBackbone:
    """A backbone whose layers take capsules, one batch at a time.

    Not safe for use by two threads at once; autograd works through it.
    """

    def __init__(self, backbone: Backbone) -> None:
        self.backbone = backbone
        self.injector = Injector(backbone.layers)

    def features(self, tokens: TokenBatch, prompts: Prompts) -> Tensor:
        """Run a batch, each row with its own capsule, and read what the heads are applied to.

        Args:
            tokens: B rows of up to T tokens, on the backbone's device.
            prompts: the capsules of these rows.

        Returns:
            [B, D] in the accumulation dtype.
        """
        embedded = self.backbone.embed(tokens)
        slots = prompts.slots
        empty = embedded.new_zeros(len(tokens), slots, embedded.shape[2])
        with self.injector.active(prompts, tokens.attention_mask, embedded.dtype) as mask:
            hidden = self.backbone.run(torch.cat((empty, embedded), dim=1), mask, slots)
        return self.backbone.read(hidden, mask, slots)


def pad(encodings: Sequence[Encoding], pad_id: int) -> TokenBatch:
    """Right-pad rows to the longest of them, on the CPU."""
    lengths = np.array([len(encoding.input_ids) for encoding in encodings])
    mask = np.arange(lengths.max()) < lengths[:, None]
    input_ids = np.full(mask.shape, pad_id, dtype=np.int64)
    for row, encoding in enumerate(encodings):
        input_ids[row, : lengths[row]] = encoding.input_ids
    return TokenBatch(input_ids=torch.from_numpy(input_ids), attention_mask=torch.from_numpy(mask))


def shared_prompts(
    variant: Variant, slots: int, tensors: Mapping[str, Tensor], rows: int
) -> Prompts:
    """One capsule for every row of a batch; under autograd the rows' gradients add up in it.

    Args:
        variant: of the capsule.
        slots: positions it takes.
        tensors: learned tensors, each [injections, ...]; those of the head are left out.
        rows: B.
    """
    expanded = {
        name: tensor.unsqueeze(0).expand(rows, *tensor.shape)
        for name, tensor in tensors.items()
        if not name.startswith("head.")
    }
    return Prompts((PromptGroup(variant=variant, slots=slots, tensors=expanded),))
