"""Real models that results are published for, by what their configurations say."""

from dataclasses import dataclass
from typing import Any

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)


@dataclass(frozen=True, slots=True)
class Published:
    """A model and what the method's authors report for it.

    Attributes:
        build: its classes for configuration and model.
        facts: of its configuration.
        parameters: how many weights it has, tied ones once.
        capsule: learned numbers of one token in every layer.
        head: and of a head for two labels, where the family has one.
        percentage: of the model's parameters that all of these are, as it is printed.
    """

    build: tuple[type[Any], type[Any]]
    facts: dict[str, Any]
    parameters: int
    capsule: int
    head: int
    percentage: str

    def model(self) -> PreTrainedModel:
        """Without memory for its weights."""
        configuration, model = self.build
        with torch.device("meta"):
            created: PreTrainedModel = model(configuration(**self.facts))
        return created


T5_FACTS: dict[str, Any] = {
    "vocab_size": 32128,
    "d_kv": 64,
    "relative_attention_num_buckets": 32,
    "feed_forward_proj": "relu",
}

PUBLISHED: dict[str, Published] = {
    "T5-Base": Published(
        build=(T5Config, T5ForConditionalGeneration),
        facts={**T5_FACTS, "d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12},
        parameters=222_903_552,
        capsule=9_216,
        head=0,
        percentage="0.004",
    ),
    "T5-Large": Published(
        build=(T5Config, T5ForConditionalGeneration),
        facts={**T5_FACTS, "d_model": 1024, "d_ff": 4096, "num_layers": 24, "num_heads": 16},
        parameters=737_668_096,
        capsule=24_576,
        head=0,
        percentage="0.003",
    ),
    "Llama-3.2-1B": Published(
        build=(LlamaConfig, LlamaForCausalLM),
        facts={
            "vocab_size": 128256,
            "hidden_size": 2048,
            "intermediate_size": 8192,
            "num_hidden_layers": 16,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 64,
            "max_position_embeddings": 131072,
            "tie_word_embeddings": True,
        },
        parameters=1_235_814_400,
        capsule=32_768,
        head=4_096,
        percentage="0.003",
    ),
    "Qwen2.5-1.5B": Published(
        build=(Qwen2Config, Qwen2ForCausalLM),
        facts={
            "vocab_size": 151936,
            "hidden_size": 1536,
            "intermediate_size": 8960,
            "num_hidden_layers": 28,
            "num_attention_heads": 12,
            "num_key_value_heads": 2,
            "tie_word_embeddings": True,
        },
        parameters=1_543_714_304,
        capsule=43_008,
        head=3_072,
        percentage="0.003",
    ),
    "Qwen2.5-7B": Published(
        build=(Qwen2Config, Qwen2ForCausalLM),
        facts={
            "vocab_size": 152064,
            "hidden_size": 3584,
            "intermediate_size": 18944,
            "num_hidden_layers": 28,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "tie_word_embeddings": False,
        },
        parameters=7_615_616_512,
        capsule=100_352,
        head=7_168,
        percentage="0.001",
    ),
}
