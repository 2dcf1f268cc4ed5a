"""Gemma 3, by what it changes in Qwen 3."""

import math
from collections.abc import Sequence

from tests.reference.llama import frequencies
from tests.reference.maths import Array, gelu_tanh, rms_norm
from tests.reference.qwen import Qwen3


class Gemma3(Qwen3):
    """Local layers have a window and a rotary base of their own; norms stand on both sides.

    The checkpoint holds the norms' weights less one.
    """

    def norm(self, x: Array, name: str) -> Array:
        return rms_norm(x, 1 + self.weight(name), self.config["rms_norm_eps"])

    def embed(self, ids: Sequence[int]) -> Array:
        rows = super().embed(ids)
        return rows * math.sqrt(rows.shape[1])

    def frequencies(self, index: int) -> list[float]:
        kind = self.config["layer_types"][index]
        return frequencies(self.config["rope_parameters"][kind], self.head_width)

    @property
    def scale(self) -> float:
        return 1 / math.sqrt(self.config["query_pre_attn_scalar"])

    def activate(self, x: Array) -> Array:
        return gelu_tanh(x)

    def layer(self, index: int, x: Array) -> Array:
        at = f"layers.{index}"
        mixed = self.attend(index, self.norm(x, f"{at}.input_layernorm"))
        x = x + self.norm(mixed, f"{at}.post_attention_layernorm")
        grown = self.feed_forward(index, self.norm(x, f"{at}.pre_feedforward_layernorm"))
        return x + self.norm(grown, f"{at}.post_feedforward_layernorm")
