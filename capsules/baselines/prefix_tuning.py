"""P-Tuning v2, known to PEFT as prefix tuning: learned keys and values at every layer."""

import copy
import inspect
from dataclasses import dataclass
from typing import Any, ClassVar

from peft import PeftConfig, PrefixTuningConfig, TaskType
from torch import Tensor
from transformers import PreTrainedModel

from capsules.backbones.base import Backbone
from capsules.backbones.ends import PaddedEnds
from capsules.backbones.t5 import T5
from capsules.baselines.adapter import Adapter
from capsules.core import Reading, TokenBatch
from capsules.errors import OptionError
from capsules.injection import Prompts
from capsules.model import InjectedBackbone

# transformers renamed the one to the other.
CACHE_ARGUMENTS = {"cache", "past_key_values"}


@dataclass(frozen=True, slots=True)
class PrefixTuning:
    """``K = [k^i ; K^i(H^{i-1})]`` and V likewise in each layer i, after Liu et al. (2022).

    Learned are k^i and v^i, each [tokens, width of the keys], without the reparameterisation, which
    helps on some tasks only, as its authors found. PEFT hands the prefix to the model as a cache of
    earlier tokens, encoders included, so the text's positions start after it. It has keys and
    values but no state, so there is nothing of it where tokens are averaged.

    Of an encoder-decoder PEFT reaches the decoder's attention to itself only, since transformers
    gives an encoder of that kind no cache. There the prefix costs the text no position.

    Attributes:
        tokens: length of the prefix.
        learning_rate: to start from.
    """

    name: ClassVar[str] = "p-tuning-v2"

    tokens: int = 20
    learning_rate: float = 0.05

    def slots(self, backbone: Backbone) -> int:
        """One position a token, where the text follows the prefix."""
        return 0 if backbone.family == "encoder-decoder" else self.tokens

    def part(self, backbone: Backbone) -> PreTrainedModel:
        """The model that reads the text; of an encoder-decoder, the decoder."""
        if backbone.family == "encoder-decoder":
            decoder: PreTrainedModel = backbone.model.get_decoder()
            return decoder
        return backbone.model

    def config(self, backbone: Backbone) -> PeftConfig:
        """A prefix shaped as the keys are.

        Raises:
            OptionError: the backbone takes no cache, as DeBERTa does not.
        """
        part = self.part(backbone)
        if not inspect.signature(type(part).forward).parameters.keys() & CACHE_ARGUMENTS:
            raise OptionError(
                f"p-tuning-v2 cannot be applied to backbones of type {part.config.model_type!r}, "
                "which accept no keys and values from outside; choose prompt-tuning or lora.",
                field="baseline",
            )
        return PrefixTuningConfig(
            task_type=TaskType.FEATURE_EXTRACTION,
            num_virtual_tokens=self.tokens,
            **(decoder_sizes(part) if backbone.family == "encoder-decoder" else {}),
        )

    def features(
        self, backbone: Backbone, adapter: Adapter, tokens: TokenBatch, reading: Reading | None
    ) -> Tensor:
        """As the bare backbone is read, at the text alone."""
        if isinstance(backbone, T5):
            # Shares everything with the backbone, but asks PEFT where that asks its decoder.
            prefixed = copy.copy(backbone)
            prefixed.decoder = adapter
            return InjectedBackbone(prefixed).features(tokens, Prompts(), reading)
        hidden = adapter(
            input_ids=tokens.input_ids, attention_mask=tokens.attention_mask, use_cache=False
        ).last_hidden_state
        return backbone.read(hidden, PaddedEnds(tokens.attention_mask), reading)


def decoder_sizes(decoder: PreTrainedModel) -> dict[str, Any]:
    """What PEFT cannot tell from the configuration of an encoder-decoder."""
    config = decoder.config
    return {
        # Asks for a cache that has room for the attention to the encoder.
        "num_transformer_submodules": 2,
        "num_attention_heads": config.num_heads,
        "token_dim": config.num_heads * config.d_kv,
        # PEFT splits the prefix into four parts a layer, two of them for the attention to the
        # encoder, where they are never read, and uses what there is twice. With the layers counted
        # twice, no layer has to share its prefix with another.
        "num_layers": 2 * config.num_layers,
    }
