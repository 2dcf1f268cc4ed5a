"""Qwen 2 and 3, by what they change in Llama."""

import numpy as np

from tests.reference.llama import Llama
from tests.reference.maths import Array


class Qwen2(Llama):
    """Queries, keys and values have biases; some layers may see a sliding window only."""

    def window(self, index: int) -> int | None:
        sliding = self.config["layer_types"][index] == "sliding_attention"
        return self.config["sliding_window"] if sliding else None


class Qwen3(Qwen2):
    """No biases; each head of queries and keys is normalised, all with the same weights."""

    def queries_and_keys(self, x: Array, at: str) -> tuple[Array, Array]:
        queries, keys = super().queries_and_keys(x, at)
        return self.by_head(queries, f"{at}.q_norm"), self.by_head(keys, f"{at}.k_norm")

    def by_head(self, x: Array, name: str) -> Array:
        """The norm over each head's part of [S, heads * width]."""
        parts = [
            self.norm(x[:, start : start + self.head_width], name)
            for start in range(0, x.shape[1], self.head_width)
        ]
        return np.concatenate(parts, axis=1)
