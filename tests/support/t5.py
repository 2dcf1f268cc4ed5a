"""T5 behind the backbone seam: capsules in the encoder, the answer from one step of the decoder."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, T5Config, T5ForConditionalGeneration

from capsules.backbones.base import Backbone, Family
from capsules.backbones.checkpoint import load_pretrained
from capsules.core import TokenBatch
from capsules.functional import accumulation_dtype


class T5(Backbone):
    """The decoder reads ``[S_^N ; H^N]`` after the encoder's final norm.

    Features are the decoder's state for the start token, scaled as a tied output wants it, so that
    the rows of the vocabulary that labels begin with are their head.
    """

    family: ClassVar[Family] = "encoder-decoder"

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__(model)
        # Typed loosely, since transformers types submodules as any module.
        self.encoder: Any = model.encoder
        self.decoder: Any = model.decoder
        self.max_tokens = 512

    @classmethod
    def load_model(cls, folder: Path, dtype: torch.dtype) -> PreTrainedModel:
        return load_pretrained(T5ForConditionalGeneration, folder, dtype)

    @property
    def layers(self) -> Sequence[nn.Module]:
        layers: Sequence[nn.Module] = self.encoder.block
        return layers

    def embed(self, tokens: TokenBatch) -> Tensor:
        embedded: Tensor = self.encoder.embed_tokens(tokens.input_ids)
        return embedded

    def run(self, hidden: Tensor, mask: Tensor, slots: int) -> Tensor:
        output: Tensor = self.encoder(inputs_embeds=hidden, attention_mask=mask).last_hidden_state
        return output

    def read(self, hidden: Tensor, mask: Tensor, slots: int) -> Tensor:
        config = self.model.config
        start = torch.full((len(hidden), 1), config.decoder_start_token_id, device=hidden.device)
        output: Tensor = self.decoder(
            input_ids=start,
            encoder_hidden_states=hidden,
            encoder_attention_mask=mask,
            use_cache=False,
        ).last_hidden_state
        scale = config.d_model**-0.5 if config.scale_decoder_outputs else 1.0
        return output[:, 0].to(accumulation_dtype(output.dtype)) * scale


# Few buckets and a short reach, so that a short text meets the logarithmic ones too.
SIZES: dict[str, Any] = {
    "vocab_size": 50,
    "d_model": 16,
    "d_kv": 4,
    "d_ff": 24,
    "num_layers": 3,
    "num_decoder_layers": 2,
    "num_heads": 4,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 10,
    "decoder_start_token_id": 0,
}


def tiny_t5(seed: int = 0) -> T5:
    """A random T5 1.0 of a few thousand weights, float32."""
    config = T5Config(**SIZES)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = T5ForConditionalGeneration(config)
        for parameter in model.parameters():
            nn.init.normal_(parameter, mean=0.5 if parameter.dim() == 1 else 0.0, std=0.4)
    return T5(model)
