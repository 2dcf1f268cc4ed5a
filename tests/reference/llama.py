"""Llama: causal, rotary positions, grouped keys and values, gated feed-forward."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tests.reference.maths import Array, attention, causal, linear, rms_norm, rotate, silu


class Llama:
    """A base model's weights, in float64.

    Args:
        config: as in `config.json`.
        weights: by their names in the base model's state dict.
    """

    def __init__(self, config: Mapping[str, Any], weights: Mapping[str, Array]) -> None:
        self.config = config
        self.weights = weights
        self.num_layers: int = config["num_hidden_layers"]
        self.heads: int = config["num_attention_heads"]
        self.key_heads: int = config["num_key_value_heads"]
        self.head_width: int = config.get("head_dim") or config["hidden_size"] // self.heads

    def weight(self, name: str) -> Array:
        value: Array = self.weights[f"{name}.weight"].astype(np.float64)
        return value

    def dense(self, x: Array, name: str) -> Array:
        bias = self.weights.get(f"{name}.bias")
        return linear(x, self.weight(name), bias)

    def norm(self, x: Array, name: str) -> Array:
        return rms_norm(x, self.weight(name), self.config["rms_norm_eps"])

    def embed(self, ids: Sequence[int]) -> Array:
        rows = self.weights["embed_tokens.weight"]
        return np.stack([rows[token].astype(np.float64) for token in ids])

    def frequencies(self, index: int) -> list[float]:
        """Angles a position, of the rotary embedding of a layer."""
        return frequencies(self.config["rope_parameters"], self.head_width)

    def window(self, index: int) -> int | None:
        """How many positions a query of a layer sees, its own included; None for all before it."""
        return None

    @property
    def scale(self) -> float:
        """Of the dot products."""
        return 1 / math.sqrt(self.head_width)

    def queries_and_keys(self, x: Array, at: str) -> tuple[Array, Array]:
        """Before their rotation."""
        return self.dense(x, f"{at}.q_proj"), self.dense(x, f"{at}.k_proj")

    def attend(self, index: int, x: Array) -> Array:
        at = f"layers.{index}.self_attn"
        queries, keys = self.queries_and_keys(x, at)
        mixed = attention(
            rotate(queries, self.heads, self.frequencies(index)),
            rotate(keys, self.key_heads, self.frequencies(index)),
            self.dense(x, f"{at}.v_proj"),
            heads=self.heads,
            key_heads=self.key_heads,
            scale=self.scale,
            allowed=causal(len(x), self.window(index)),
        )
        return self.dense(mixed, f"{at}.o_proj")

    def activate(self, x: Array) -> Array:
        return silu(x)

    def feed_forward(self, index: int, x: Array) -> Array:
        at = f"layers.{index}.mlp"
        grown = self.activate(self.dense(x, f"{at}.gate_proj")) * self.dense(x, f"{at}.up_proj")
        return self.dense(grown, f"{at}.down_proj")

    def layer(self, index: int, x: Array) -> Array:
        at = f"layers.{index}"
        x = x + self.attend(index, self.norm(x, f"{at}.input_layernorm"))
        return x + self.feed_forward(index, self.norm(x, f"{at}.post_attention_layernorm"))

    def read(self, x: Array) -> Array:
        """The last position after the final norm."""
        last: Array = self.norm(x, "norm")[-1]
        return last


def frequencies(rope: Mapping[str, Any], width: int) -> list[float]:
    """Angles a position of each pair of a head: ``base^(-2j / width)``, slowed down if asked.

    Llama 3's scaling leaves what turns more than `high_freq_factor` times in the original context
    as it is, divides what turns less than `low_freq_factor` times by `factor`, and goes linearly
    from one to the other in between.

    Args:
        rope: `rope_parameters` of a configuration.
        width: of a head.
    """
    found = [rope["rope_theta"] ** (-2 * j / width) for j in range(width // 2)]
    if rope["rope_type"] == "default":
        return found
    assert rope["rope_type"] == "llama3"
    slowest, fastest = rope["low_freq_factor"], rope["high_freq_factor"]
    scaled = []
    for frequency in found:
        turns = rope["original_max_position_embeddings"] * frequency / (2 * math.pi)
        kept = min(max((turns - slowest) / (fastest - slowest), 0.0), 1.0)
        scaled.append(frequency * (kept + (1 - kept) / rope["factor"]))
    return scaled
