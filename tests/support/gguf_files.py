"""A tiny random Qwen 2 as one GGUF file."""

from pathlib import Path
from typing import Any

import torch
from gguf import GGUFWriter, TokenType
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedModel, Qwen2Config, Qwen2Model

LETTERS = sorted(ByteLevel.alphabet())
# Every byte, one pair that is merged, and what ends a text.
TOKENS = [*LETTERS, "ab", "<|end|>"]
END = len(TOKENS) - 1

# What the format calls each part of a layer, and of the model around the layers.
LAYER_PARTS = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
PARTS = {"embed_tokens": "token_embd", "norm": "output_norm"}


def tiny_qwen(seed: int = 0) -> PreTrainedModel:
    """A random model of a few thousand weights."""
    config = Qwen2Config(
        vocab_size=len(TOKENS),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        rope_parameters={"rope_type": "default", "rope_theta": 50.0},
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model: PreTrainedModel = Qwen2Model(config)
        for parameter in model.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.3)
    model.eval()
    return model


def save_gguf(model: PreTrainedModel, path: Path, *, architecture: str = "qwen2") -> Path:
    """Write a model with its tokenizer.

    Args:
        model: as :func:`tiny_qwen` makes it.
        path: of the file.
        architecture: what the file says that it is.
    """
    config: Any = model.config
    writer = GGUFWriter(path, architecture)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(TOKENS)
    writer.add_token_types([TokenType.NORMAL] * END + [TokenType.CONTROL])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(END)
    writer.add_pad_token_id(END)
    for name, tensor in model.state_dict().items():
        writer.add_tensor(gguf_name(name), tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def gguf_name(name: str) -> str:
    """What the format calls a tensor that transformers calls `name`."""
    stem, _, kind = name.rpartition(".")
    if not stem.startswith("layers."):
        return f"{PARTS[stem]}.{kind}"
    _, layer, part = stem.split(".", 2)
    return f"blk.{layer}.{LAYER_PARTS[part]}.{kind}"
