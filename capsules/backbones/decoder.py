"""Decoder-only transformers laid out as Llama is: Llama, Qwen2, Qwen3."""

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel
from transformers.masking_utils import create_causal_mask, create_sliding_window_causal_mask

from capsules.backbones.attention import Bins, Sight, visible
from capsules.backbones.base import Backbone, Entry, Family
from capsules.backbones.checkpoint import load_pretrained
from capsules.backbones.ends import Ends
from capsules.backbones.source import BackboneSource
from capsules.core import Reading, TokenBatch

MASKS = {
    "full_attention": partial(create_causal_mask, cache=None),
    "sliding_attention": partial(create_sliding_window_causal_mask, cache=None),
}


class Decoder(Backbone):
    """Capsules stand at the first positions, and the text's positions shift by as many.

    ``f = H^N`` of the last real token, after the final norm, as sequence classification reads it.
    Positions count marked places only, and windows count places in the sequence, where a capsule
    stands right before its text: neither unused slots nor padding move anything.
    """

    family: ClassVar[Family] = "decoder-only"

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__(model)
        # Typed loosely, since transformers types submodules as any module.
        self.decoder: Any = model
        self.max_tokens = model.config.max_position_embeddings
        # How each layer attends; families without windows do not say.
        self.kinds: list[str] = getattr(model.config, "layer_types", None) or [
            "full_attention"
        ] * len(self.layers)

    @classmethod
    def load_model(cls, source: BackboneSource, dtype: torch.dtype) -> PreTrainedModel:
        """Load without the language model's output, which the method does not read."""
        return load_pretrained(AutoModel, source, dtype)

    @property
    def layers(self) -> Sequence[nn.Module]:
        """The decoder's layers."""
        layers: Sequence[nn.Module] = self.decoder.layers
        return layers

    @property
    def attentions(self) -> Sequence[nn.Module]:
        """One in each layer."""
        return [layer.self_attn for layer in self.decoder.layers]

    @property
    def sights(self) -> Sequence[Sight]:
        """Every place to those before it, in some layers only to the nearest."""
        window = getattr(self.model.config, "sliding_window", None)
        return [
            Sight(causal=True, window=window if kind == "sliding_attention" else None)
            for kind in self.kinds
        ]

    def embed(self, tokens: TokenBatch) -> Tensor:
        """Word embeddings, [B, T, D]."""
        embedded: Tensor = self.decoder.embed_tokens(tokens.input_ids)
        return embedded

    def rotary(self, hidden: Tensor, positions: Tensor, kind: str) -> tuple[Tensor, Tensor]:
        """Cosines and sines of the rotary angles, [B, K + T, head width] each.

        Args:
            hidden: [B, K + T, D], for its dtype.
            positions: [B, K + T] int64.
            kind: how the layer attends.
        """
        angles: tuple[Tensor, Tensor] = self.decoder.rotary_emb(hidden, positions)
        return angles

    def run(self, hidden: Tensor, entry: Entry) -> Tensor:
        """All layers over slots and tokens, each position seeing marked ones before it."""
        positions = entry.positions
        kinds = set(self.kinds)
        angles = {kind: self.rotary(hidden, positions, kind) for kind in kinds}
        seen: Tensor | Bins | None = None
        attention: dict[str, Tensor | Bins | None] = {}
        for index, (layer, kind) in enumerate(zip(self.layers, self.kinds, strict=True)):
            mask = entry.mask(index)
            if mask is not seen:
                attention = {
                    kind: visible(MASKS[kind], self.model.config, hidden, mask) for kind in kinds
                }
                seen = mask
            hidden = layer(
                entry.enter(index, hidden),
                attention_mask=attention[kind],
                position_ids=positions,
                position_embeddings=angles[kind],
            )
        normed: Tensor = self.decoder.norm(hidden)
        return normed

    def read(self, hidden: Tensor, ends: Ends, reading: Reading | None) -> Tensor:
        """The last real token's state, [B, D]."""
        return ends.last(hidden)
