"""T5: relative position buckets, unscaled attention, answers in words."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tests.reference.maths import Array, attention, causal, gelu_tanh, linear, relu, rms_norm


class T5:
    """The weights of T5 1.0 or 1.1, in float64; the encoder is what capsules are injected into.

    1.0 has a plain feed-forward with a ReLU, and scores words with the scaled input embedding; 1.1
    has a gated one with a GELU, and a matrix of its own for the scores.

    Args:
        config: as in `config.json`.
        weights: by their names in the conditional generation model's state dict.
    """

    def __init__(self, config: Mapping[str, Any], weights: Mapping[str, Array]) -> None:
        self.weights = weights
        self.num_layers: int = config["num_layers"]
        self.decoder_layers: int = config["num_decoder_layers"]
        self.heads: int = config["num_heads"]
        self.epsilon: float = config["layer_norm_epsilon"]
        self.buckets: int = config["relative_attention_num_buckets"]
        self.far: int = config["relative_attention_max_distance"]
        self.start: int = config["decoder_start_token_id"]
        self.first_version: bool = config["feed_forward_proj"] == "relu"

    def embed(self, ids: Sequence[int]) -> Array:
        return np.stack([self.weights["shared.weight"][token] for token in ids])

    def norm(self, x: Array, name: str) -> Array:
        return rms_norm(x, self.weights[f"{name}.weight"], self.epsilon)

    def dense(self, x: Array, name: str) -> Array:
        return linear(x, self.weights[f"{name}.weight"])

    def near(self, distance: int, buckets: int) -> int:
        """Bucket of a distance of at least 0: half of them exact, the rest ever wider."""
        exact = buckets // 2
        if distance < exact:
            return distance
        steps = math.log(distance / exact) / math.log(self.far / exact) * (buckets - exact)
        return min(exact + int(steps), buckets - 1)

    def encoder_bucket(self, query: int, key: int) -> int:
        """Half of the buckets for each side."""
        half = self.buckets // 2
        return self.near(abs(key - query), half) + (half if key > query else 0)

    def decoder_bucket(self, query: int, key: int) -> int:
        """All of them for what came before."""
        return self.near(max(query - key, 0), self.buckets)

    def bias(self, stack: str, bucket: Callable[[int, int], int], length: int) -> Array:
        """[heads, length, length] added to the scores of all self-attention of a stack."""
        table = self.weights[
            f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        ]
        places = [[bucket(query, key) for key in range(length)] for query in range(length)]
        return np.moveaxis(table[np.array(places)], -1, 0)

    def attend(
        self,
        x: Array,
        at: str,
        memory: Array,
        bias: Array | None = None,
        allowed: Array | None = None,
    ) -> Array:
        mixed = attention(
            self.dense(x, f"{at}.q"),
            self.dense(memory, f"{at}.k"),
            self.dense(memory, f"{at}.v"),
            heads=self.heads,
            scale=1.0,
            bias=bias,
            allowed=allowed,
        )
        return self.dense(mixed, f"{at}.o")

    def feed_forward(self, x: Array, at: str) -> Array:
        entering = self.norm(x, f"{at}.layer_norm")
        at = f"{at}.DenseReluDense"
        if self.first_version:
            grown = relu(self.dense(entering, f"{at}.wi"))
        else:
            grown = gelu_tanh(self.dense(entering, f"{at}.wi_0"))
            grown = grown * self.dense(entering, f"{at}.wi_1")
        return x + self.dense(grown, f"{at}.wo")

    def layer(self, index: int, x: Array) -> Array:
        at = f"encoder.block.{index}.layer"
        entering = self.norm(x, f"{at}.0.layer_norm")
        bias = self.bias("encoder", self.encoder_bucket, len(x))
        x = x + self.attend(entering, f"{at}.0.SelfAttention", entering, bias)
        return self.feed_forward(x, f"{at}.1")

    def decode(self, x: Array, prefix: Sequence[int]) -> Array:
        """The decoder's state [D] after the start token and the first words of an answer.

        Args:
            x: [S, D] the encoder's last layer.
            prefix: token ids of these words.
        """
        memory = self.norm(x, "encoder.final_layer_norm")
        y = self.embed([self.start, *prefix])
        bias, earlier = self.bias("decoder", self.decoder_bucket, len(y)), causal(len(y))
        for index in range(self.decoder_layers):
            at = f"decoder.block.{index}.layer"
            entering = self.norm(y, f"{at}.0.layer_norm")
            y = y + self.attend(entering, f"{at}.0.SelfAttention", entering, bias, earlier)
            entering = self.norm(y, f"{at}.1.layer_norm")
            y = y + self.attend(entering, f"{at}.1.EncDecAttention", memory)
            y = self.feed_forward(y, f"{at}.2")
        last: Array = self.norm(y, "decoder.final_layer_norm")[-1]
        return last / math.sqrt(len(last)) if self.first_version else last

    def read(self, x: Array) -> Array:
        """The decoder's answer to the start token, scaled as a tied output wants it."""
        return self.decode(x, [])

    def logits(self, x: Array, prefix: Sequence[int]) -> Array:
        """[V] scores of the token that follows the first words of an answer."""
        name = "shared.weight" if self.first_version else "lm_head.weight"
        return linear(self.decode(x, prefix), self.weights[name])
