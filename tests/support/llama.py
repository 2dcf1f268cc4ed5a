"""Llama behind the backbone seam: capsules in all layers, the answer at the last real token."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaModel, PreTrainedModel

from capsules.backbones.base import Backbone, Family
from capsules.backbones.checkpoint import load_pretrained
from capsules.core import TokenBatch
from capsules.functional import accumulation_dtype


class Llama(Backbone):
    """The capsule stands at position 0, so the text's positions shift by one.

    Positions count marked places only, so neither unused slots nor padding on either side move the
    text.
    """

    family: ClassVar[Family] = "decoder-only"

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__(model)
        # Typed loosely, since transformers types submodules as any module.
        self.decoder: Any = model
        self.max_tokens = model.config.max_position_embeddings

    @classmethod
    def load_model(cls, folder: Path, dtype: torch.dtype) -> PreTrainedModel:
        return load_pretrained(LlamaModel, folder, dtype)

    @property
    def layers(self) -> Sequence[nn.Module]:
        layers: Sequence[nn.Module] = self.decoder.layers
        return layers

    def embed(self, tokens: TokenBatch) -> Tensor:
        embedded: Tensor = self.decoder.embed_tokens(tokens.input_ids)
        return embedded

    def run(self, hidden: Tensor, mask: Tensor, slots: int) -> Tensor:
        positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
        output: Tensor = self.decoder(
            inputs_embeds=hidden, attention_mask=mask, position_ids=positions, use_cache=False
        ).last_hidden_state
        return output

    def read(self, hidden: Tensor, mask: Tensor, slots: int) -> Tensor:
        places = torch.arange(mask.shape[1], device=mask.device)
        last = (mask * places).argmax(dim=1)
        rows = torch.arange(len(hidden), device=hidden.device)
        return hidden[rows, last].to(accumulation_dtype(hidden.dtype))


def tiny_llama(seed: int = 0) -> Llama:
    """A random Llama of a few thousand weights with grouped keys, float32."""
    config = LlamaConfig(
        vocab_size=50,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        rope_parameters={"rope_type": "default", "rope_theta": 50.0},
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LlamaModel(config)
        for parameter in model.parameters():
            nn.init.normal_(parameter, mean=0.5 if parameter.dim() == 1 else 0.0, std=0.4)
    return Llama(model)
