"""DeBERTa v2 and v3: content and relative positions attend to each other."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tests.reference.maths import Array, gelu, layer_norm, linear, softmax


class Deberta:
    """A checkpoint's weights, in float64.

    v2 adds a convolution over the input of the first layer to that layer's output; v3 has none.

    Args:
        config: as in `config.json`.
        weights: by their names in the checkpoint.
    """

    def __init__(self, config: Mapping[str, Any], weights: Mapping[str, Array]) -> None:
        self.weights = weights
        self.num_layers: int = config["num_hidden_layers"]
        self.heads: int = config["num_attention_heads"]
        self.epsilon: float = config["layer_norm_eps"]
        self.buckets: int = config["position_buckets"]
        self.far: int = config["max_relative_positions"]
        assert config["share_att_key"]
        assert config["pos_att_type"] == ["p2c", "c2p"]
        assert config["norm_rel_ebd"] == "layer_norm"
        assert not config["position_biased_input"]

    def norm(self, x: Array, name: str) -> Array:
        weight, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        return layer_norm(x, weight, bias, self.epsilon)

    def dense(self, x: Array, name: str) -> Array:
        return linear(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def embed(self, ids: Sequence[int]) -> Array:
        words = self.weights["embeddings.word_embeddings.weight"]
        return self.norm(np.stack([words[token] for token in ids]), "embeddings.LayerNorm")

    def bucket(self, distance: int) -> int:
        """Of a signed distance: near ones exact, the others ever wider."""
        middle = self.buckets // 2
        far = abs(distance)
        if far <= middle:
            return distance
        share = math.log(far / middle) / math.log((self.far - 1) / middle)
        steps = math.ceil(share * (middle - 1)) + middle
        return steps if distance > 0 else -steps

    def places(self, length: int) -> Array:
        """[query, key] rows of the position embedding."""
        rows = [
            [self.bucket(query - key) + self.buckets for key in range(length)]
            for query in range(length)
        ]
        clipped: Array = np.clip(np.array(rows), 0, 2 * self.buckets - 1)
        return clipped

    def attend(self, x: Array, at: str) -> Array:
        queries, keys, values = (
            self.dense(x, f"{at}.{name}_proj") for name in ("query", "key", "value")
        )
        table = self.norm(self.weights["encoder.rel_embeddings.weight"], "encoder.LayerNorm")
        place_queries = self.dense(table, f"{at}.query_proj")
        place_keys = self.dense(table, f"{at}.key_proj")
        places = self.places(len(x))
        width = x.shape[1] // self.heads
        out = np.zeros_like(x)
        for head in range(self.heads):
            mine = slice(head * width, (head + 1) * width)
            content = queries[:, mine] @ keys[:, mine].T
            # [query, key]: the query against the key's place, the key against the query's.
            to_place = np.take_along_axis(queries[:, mine] @ place_keys[:, mine].T, places, 1)
            to_query = np.take_along_axis(keys[:, mine] @ place_queries[:, mine].T, places.T, 1)
            scores = (content + to_place + to_query.T) / math.sqrt(3 * width)
            out[:, mine] = softmax(scores) @ values[:, mine]
        return out

    def layer(self, index: int, x: Array) -> Array:
        output = self.block(index, x)
        if index == 0 and "encoder.conv.conv.weight" in self.weights:
            output = self.norm(output + gelu(self.convolve(x)), "encoder.conv.LayerNorm")
        return output

    def block(self, index: int, x: Array) -> Array:
        at = f"encoder.layer.{index}"
        mixed = self.attend(x, f"{at}.attention.self")
        attended = self.norm(
            x + self.dense(mixed, f"{at}.attention.output.dense"),
            f"{at}.attention.output.LayerNorm",
        )
        grown = gelu(self.dense(attended, f"{at}.intermediate.dense"))
        return self.norm(
            attended + self.dense(grown, f"{at}.output.dense"), f"{at}.output.LayerNorm"
        )

    def convolve(self, x: Array) -> Array:
        """All channels over three neighbouring positions, zero outside the sequence."""
        weight, bias = (self.weights[f"encoder.conv.conv.{name}"] for name in ("weight", "bias"))
        edge = np.zeros((1, x.shape[1]))
        padded = np.concatenate([edge, x, edge])
        rows = [
            sum(weight[:, :, j] @ padded[t + j] for j in range(weight.shape[2])) + bias
            for t in range(len(x))
        ]
        return np.stack(rows)

    def read(self, x: Array) -> Array:
        """Mean over the processed capsule and the text."""
        return np.asarray(sum(row for row in x) / len(x))
