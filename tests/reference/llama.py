"""Llama: causal, rotary positions, grouped keys and values, gated feed-forward."""

from collections.abc import Mapping, Sequence

import numpy as np

from tests.reference.maths import Array, attention, linear, rms_norm, silu


class Llama:
    """A state dict's weights, in float64.

    Args:
        weights: by their names in the base model's state dict.
        num_layers: N.
        heads: of the queries.
        key_heads: of keys and values.
        epsilon: of the norms.
        base: of the rotary frequencies.
    """

    def __init__(
        self,
        weights: Mapping[str, Array],
        *,
        num_layers: int,
        heads: int,
        key_heads: int,
        epsilon: float,
        base: float,
    ) -> None:
        self.weights = weights
        self.num_layers = num_layers
        self.heads = heads
        self.key_heads = key_heads
        self.epsilon = epsilon
        self.base = base

    def embed(self, ids: Sequence[int]) -> Array:
        return np.stack([self.weights["embed_tokens.weight"][token] for token in ids])

    def norm(self, x: Array, name: str) -> Array:
        return rms_norm(x, self.weights[f"{name}.weight"], self.epsilon)

    def rotate(self, x: Array, heads: int) -> Array:
        """Turn each pair (j, j + width / 2) of a head by ``position * base^(-2j / width)``."""
        width = x.shape[1] // heads
        half = width // 2
        out = np.zeros_like(x)
        for position in range(len(x)):
            for head in range(heads):
                for j in range(half):
                    one, other = head * width + j, head * width + j + half
                    angle = position * self.base ** (-2 * j / width)
                    a, b = x[position, one], x[position, other]
                    out[position, one] = a * np.cos(angle) - b * np.sin(angle)
                    out[position, other] = b * np.cos(angle) + a * np.sin(angle)
        return out

    def layer(self, index: int, x: Array) -> Array:
        at = f"layers.{index}"
        entering = self.norm(x, f"{at}.input_layernorm")
        queries, keys, values = (
            linear(entering, self.weights[f"{at}.self_attn.{name}_proj.weight"]) for name in "qkv"
        )
        mixed = attention(
            self.rotate(queries, self.heads),
            self.rotate(keys, self.key_heads),
            values,
            heads=self.heads,
            key_heads=self.key_heads,
            scale=(queries.shape[1] // self.heads) ** -0.5,
            causal=True,
        )
        x = x + linear(mixed, self.weights[f"{at}.self_attn.o_proj.weight"])
        entering = self.norm(x, f"{at}.post_attention_layernorm")
        gate, up = (
            linear(entering, self.weights[f"{at}.mlp.{name}_proj.weight"])
            for name in ("gate", "up")
        )
        return x + linear(silu(gate) * up, self.weights[f"{at}.mlp.down_proj.weight"])

    def read(self, x: Array) -> Array:
        """The last position after the final norm."""
        last: Array = self.norm(x, "norm")[-1]
        return last
