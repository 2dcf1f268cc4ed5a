"""T5 of all versions: capsules in the encoder, answers in words from the decoder."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import AutoModelForSeq2SeqLM, PreTrainedModel
from transformers.masking_utils import create_bidirectional_mask

from capsules.backbones.attention import Bins, visible
from capsules.backbones.base import Entry, Family, WordBackbone
from capsules.backbones.checkpoint import load_pretrained
from capsules.backbones.ends import Ends
from capsules.backbones.source import BackboneSource
from capsules.core import Reading, TokenBatch
from capsules.errors import OptionError
from capsules.functional import accumulation_dtype

# Where the configuration has no `n_positions`; distances are relative, so it is a habit, no limit.
USUAL_TOKENS = 512


class T5(WordBackbone):
    """The decoder attends to ``[S_^N ; H^N]`` after the encoder's final norm.

    Features are the decoder's states, scaled as a tied output wants them, so that the rows of the
    output matrix that belong to label words are their head.
    """

    family: ClassVar[Family] = "encoder-decoder"

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__(model)
        # Typed loosely, since transformers types submodules as any module.
        self.encoder: Any = model.encoder
        self.decoder: Any = model.decoder
        self.output: Any = model.get_output_embeddings()
        self.max_tokens = getattr(model.config, "n_positions", USUAL_TOKENS)
        self.end_token = model.config.eos_token_id
        # Said by T5's own configuration alone: mT5 never scales.
        scales = getattr(model.config, "scale_decoder_outputs", False)
        self.scale = model.config.d_model**-0.5 if scales else 1.0

    @classmethod
    def load_model(cls, source: BackboneSource, dtype: torch.dtype) -> PreTrainedModel:
        """Load encoder, decoder and output.

        Raises:
            OptionError: in float16, whose range its activations leave.
        """
        if dtype == torch.float16:
            raise OptionError(
                "T5's activations overflow in float16; choose bfloat16 or float32.", field="dtype"
            )
        return load_pretrained(AutoModelForSeq2SeqLM, source, dtype)

    @property
    def layers(self) -> Sequence[nn.Module]:
        """The encoder's layers."""
        layers: Sequence[nn.Module] = self.encoder.block
        return layers

    @property
    def attentions(self) -> Sequence[Any]:
        """The first sublayer of each encoder layer."""
        return [block.layer[0].SelfAttention for block in self.encoder.block]

    def embed(self, tokens: TokenBatch) -> Tensor:
        """Word embeddings, [B, T, D]."""
        embedded: Tensor = self.encoder.embed_tokens(tokens.input_ids)
        return embedded

    def run(self, hidden: Tensor, entry: Entry) -> Tensor:
        """The encoder over slots and tokens, and its final norm."""
        # The first layer makes the bias of relative positions that all of them share.
        bias: Tensor | None = None
        seen: Tensor | Bins | None = None
        attention: Tensor | Bins | None = None
        for index, layer in enumerate(self.layers):
            mask = entry.mask(index)
            if mask is not seen:
                attention = visible(create_bidirectional_mask, self.encoder.config, hidden, mask)
                seen = mask
            if bias is None and isinstance(mask, Bins):
                # Distances are those within a bin, where rows have their places side by side.
                width = mask.gather.shape[1]
                bias = self.attentions[0].compute_bias(width, width)
            hidden, bias, _ = layer(entry.enter(index, hidden), attention, bias)
        normed: Tensor = self.encoder.final_layer_norm(hidden)
        return normed

    def read(self, hidden: Tensor, ends: Ends, reading: Reading | None) -> Tensor:
        """The decoder's states, [M, D]; without a reading, the start token's of every row."""
        hidden, mask = ends.rows(hidden)
        start = self.model.config.decoder_start_token_id
        if reading is None:
            paths = torch.full((len(hidden), 1), start, device=hidden.device)
        else:
            hidden, mask = hidden[reading.rows], mask[reading.rows]
            first = torch.full_like(reading.rows, start).unsqueeze(1)
            paths = torch.cat((first, reading.prefixes), dim=1)
        states: Tensor = self.decoder(
            input_ids=paths,
            encoder_hidden_states=hidden,
            encoder_attention_mask=mask,
            use_cache=False,
        ).last_hidden_state
        read = states[:, 0] if reading is None else states[reading.paths, reading.steps]
        return read.to(accumulation_dtype(read.dtype)) * self.scale

    def word_rows(self, tokens: Sequence[int]) -> Tensor:
        """Rows of the output matrix, [n, D]."""
        weight: Tensor = self.output.weight
        rows = weight[torch.tensor(tokens, device=weight.device)]
        return rows.to(accumulation_dtype(rows.dtype))
