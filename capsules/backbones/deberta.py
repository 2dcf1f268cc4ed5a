"""DeBERTa v2 and v3: an encoder whose attention reads content and distance apart."""

from typing import ClassVar

import torch
from torch import Tensor
from transformers import AutoModel, PreTrainedModel

from capsules.backbones.base import Entry
from capsules.backbones.checkpoint import load_pretrained
from capsules.backbones.encoder import Encoder
from capsules.backbones.source import BackboneSource
from capsules.core import TokenBatch


class Deberta(Encoder):
    """Capsules stand one before the text, and distances count them; the answer is the mean.

    ``f = Mean(S_^N (+) H^N)``, to which the capsule's head is applied.
    """

    # Its attention is its own, and takes rows side by side.
    packs: ClassVar[bool] = False

    @classmethod
    def load_model(cls, source: BackboneSource, dtype: torch.dtype) -> PreTrainedModel:
        """Load with eager attention, the only one this architecture has."""
        return load_pretrained(AutoModel, source, dtype, attention="eager")

    def embed(self, tokens: TokenBatch) -> Tensor:
        """Word embeddings after their norm, and zeros where there is padding, [B, T, D]."""
        embedded: Tensor = self.embeddings(
            input_ids=tokens.input_ids, mask=tokens.attention_mask.long()
        )
        return embedded

    def run(self, hidden: Tensor, entry: Entry) -> Tensor:
        """The encoder over slots and tokens, every position seeing every marked one."""
        relative = self.encoder.get_rel_pos(hidden)
        distances = self.encoder.get_rel_embedding()
        for index, layer in enumerate(self.layers):
            allowed = entry.mask(index)
            assert isinstance(allowed, Tensor), "rows are never packed"
            mask = allowed.long()
            entering = entry.enter(index, hidden)
            hidden, _ = layer(
                entering,
                self.encoder.get_attention_mask(mask),
                relative_pos=relative,
                rel_embeddings=distances,
                output_attentions=True,
            )
            # Some sizes have a convolution beside the first layer.
            if index == 0 and self.encoder.conv is not None:
                hidden = self.encoder.conv(entering, hidden, mask)
        return hidden
