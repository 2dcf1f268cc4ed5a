"""T5 1.0: relative position buckets, unscaled attention, tied and scaled output."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from tests.reference.maths import Array, attention, linear, relu, rms_norm


class T5:
    """A state dict's weights, in float64; the encoder is what capsules are injected into.

    Args:
        weights: by their names in the conditional generation model's state dict.
        num_layers: of the encoder.
        decoder_layers: of the decoder.
        heads: of all attention.
        epsilon: of the norms.
        buckets: of relative positions.
        far: distance from which on all share one bucket.
        start: token id that decoding starts with.
    """

    def __init__(
        self,
        weights: Mapping[str, Array],
        *,
        num_layers: int,
        decoder_layers: int,
        heads: int,
        epsilon: float,
        buckets: int,
        far: int,
        start: int,
    ) -> None:
        self.weights = weights
        self.num_layers = num_layers
        self.decoder_layers = decoder_layers
        self.heads = heads
        self.epsilon = epsilon
        self.buckets = buckets
        self.far = far
        self.start = start

    def embed(self, ids: Sequence[int]) -> Array:
        return np.stack([self.weights["shared.weight"][token] for token in ids])

    def norm(self, x: Array, name: str) -> Array:
        return rms_norm(x, self.weights[f"{name}.weight"], self.epsilon)

    def bucket(self, distance: int) -> int:
        """Of a key `distance` positions after its query: half for each side, near ones exact."""
        half = self.buckets // 2
        side = half if distance > 0 else 0
        distance = abs(distance)
        exact = half // 2
        if distance < exact:
            return side + distance
        steps = math.log(distance / exact) / math.log(self.far / exact) * (half - exact)
        return side + min(exact + int(steps), half - 1)

    def encoder_bias(self, head: int, query: int, key: int) -> float:
        name = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        return float(self.weights[name][self.bucket(key - query), head])

    def decoder_bias(self, head: int, query: int, key: int) -> float:
        """Only the start token looks at itself, at distance 0."""
        name = "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        return float(self.weights[name][0, head])

    def feed_forward(self, x: Array, at: str) -> Array:
        entering = self.norm(x, f"{at}.layer_norm")
        grown = relu(linear(entering, self.weights[f"{at}.DenseReluDense.wi.weight"]))
        return x + linear(grown, self.weights[f"{at}.DenseReluDense.wo.weight"])

    def layer(self, index: int, x: Array) -> Array:
        at = f"encoder.block.{index}.layer"
        entering = self.norm(x, f"{at}.0.layer_norm")
        queries, keys, values = (
            linear(entering, self.weights[f"{at}.0.SelfAttention.{name}.weight"]) for name in "qkv"
        )
        mixed = attention(
            queries, keys, values, heads=self.heads, scale=1.0, bias=self.encoder_bias
        )
        x = x + linear(mixed, self.weights[f"{at}.0.SelfAttention.o.weight"])
        return self.feed_forward(x, f"{at}.1")

    def read(self, x: Array) -> Array:
        """The decoder's answer to the start token, scaled as a tied output wants it."""
        memory = self.norm(x, "encoder.final_layer_norm")
        y = self.weights["shared.weight"][[self.start]]
        for index in range(self.decoder_layers):
            at = f"decoder.block.{index}.layer"
            entering = self.norm(y, f"{at}.0.layer_norm")
            queries, keys, values = (
                linear(entering, self.weights[f"{at}.0.SelfAttention.{name}.weight"])
                for name in "qkv"
            )
            mixed = attention(
                queries, keys, values, heads=self.heads, scale=1.0, bias=self.decoder_bias
            )
            y = y + linear(mixed, self.weights[f"{at}.0.SelfAttention.o.weight"])
            entering = self.norm(y, f"{at}.1.layer_norm")
            queries = linear(entering, self.weights[f"{at}.1.EncDecAttention.q.weight"])
            keys, values = (
                linear(memory, self.weights[f"{at}.1.EncDecAttention.{name}.weight"])
                for name in "kv"
            )
            mixed = attention(queries, keys, values, heads=self.heads, scale=1.0)
            y = y + linear(mixed, self.weights[f"{at}.1.EncDecAttention.o.weight"])
            y = self.feed_forward(y, f"{at}.2")
        final = self.norm(y, "decoder.final_layer_norm")[0]
        return np.asarray(final * len(final) ** -0.5)

    def logits(self, x: Array) -> Array:
        """[V] scores of the first token of the answer, over the whole vocabulary."""
        return linear(self.read(x), self.weights["shared.weight"])
