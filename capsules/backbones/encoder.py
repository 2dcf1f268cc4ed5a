"""Encoder-only transformers laid out as BERT is: MiniLM, BERT, RoBERTa, XLM-RoBERTa."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel
from transformers.masking_utils import create_bidirectional_mask

from capsules.backbones.attention import Bins, visible
from capsules.backbones.base import Backbone, Entry, Family
from capsules.backbones.checkpoint import load_pretrained
from capsules.backbones.ends import Ends
from capsules.backbones.source import BackboneSource
from capsules.core import Reading, TokenBatch


class Encoder(Backbone):
    """Capsules take no position embedding and the text keeps its own; the answer is the mean.

    ``f = Mean(S_^N (+) H^N)``, to which the capsule's head is applied.
    """

    family: ClassVar[Family] = "encoder-only"

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__(model)
        config = model.config
        # Typed loosely, since transformers types submodules as any module.
        self.embeddings: Any = model.embeddings
        self.encoder: Any = model.encoder
        # RoBERTa numbers positions from padding_idx + 1, which costs that many of them.
        counted_on = config.model_type in ("roberta", "xlm-roberta")
        self.offset = config.pad_token_id + 1 if counted_on else 0
        self.max_tokens = config.max_position_embeddings - self.offset

    @classmethod
    def load_model(cls, source: BackboneSource, dtype: torch.dtype) -> PreTrainedModel:
        """Load without the pooler, which the method does not read."""
        return load_pretrained(AutoModel, source, dtype, add_pooling_layer=False)

    @property
    def layers(self) -> Sequence[nn.Module]:
        """The encoder's layers."""
        layers: Sequence[nn.Module] = self.encoder.layer
        return layers

    @property
    def attentions(self) -> Sequence[nn.Module]:
        """Inside each layer's attention block."""
        return [layer.attention.self for layer in self.encoder.layer]

    def embed(self, tokens: TokenBatch) -> Tensor:
        """Word + position + type embeddings after their norm, [B, T, D]."""
        places = tokens.places
        if places is None:
            # Given, since RoBERTa would not count a token of the text that happens to be the one
            # that pads.
            places = torch.arange(tokens.input_ids.shape[1], device=tokens.input_ids.device)[None]
        embedded: Tensor = self.embeddings(
            input_ids=tokens.input_ids, position_ids=places + self.offset
        )
        return embedded

    def run(self, hidden: Tensor, entry: Entry) -> Tensor:
        """The encoder over slots and tokens, every position seeing every marked one."""
        seen: Tensor | Bins | None = None
        attention: Tensor | Bins | None = None
        for index, layer in enumerate(self.layers):
            mask = entry.mask(index)
            if mask is not seen:
                attention = visible(create_bidirectional_mask, self.model.config, hidden, mask)
                seen = mask
            hidden = layer(entry.enter(index, hidden), attention)
        return hidden

    def read(self, hidden: Tensor, ends: Ends, reading: Reading | None) -> Tensor:
        """Mean over the processed capsule and the real tokens, [B, D]."""
        return ends.mean(hidden)
