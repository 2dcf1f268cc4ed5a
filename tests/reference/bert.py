"""BERT, and RoBERTa, which only numbers its positions differently."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from tests.reference.maths import Array, attention, gelu, layer_norm, linear


class Bert:
    """A checkpoint's weights, in float64.

    Args:
        config: as in `config.json`.
        weights: by their names in the checkpoint.
        first_position: position number of the first token.
    """

    def __init__(
        self, config: Mapping[str, Any], weights: Mapping[str, Array], first_position: int = 0
    ) -> None:
        self.weights = {name: value.astype(np.float64) for name, value in weights.items()}
        self.num_layers: int = config["num_hidden_layers"]
        self.heads: int = config["num_attention_heads"]
        self.epsilon: float = config["layer_norm_eps"]
        self.first_position = first_position
        assert config["hidden_act"] == "gelu"

    @classmethod
    def from_folder(cls, folder: Path) -> "Bert":
        """Straight from the files; RoBERTa counts from the padding token's number plus one."""
        config = json.loads((folder / "config.json").read_text())
        first = config["pad_token_id"] + 1 if config["model_type"] == "roberta" else 0
        return cls(config, load_file(folder / "model.safetensors"), first)

    def norm(self, x: Array, name: str) -> Array:
        weight, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        return layer_norm(x, weight, bias, self.epsilon)

    def dense(self, x: Array, name: str) -> Array:
        return linear(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def embed(self, ids: Sequence[int]) -> Array:
        words = self.weights["embeddings.word_embeddings.weight"]
        positions = self.weights["embeddings.position_embeddings.weight"]
        types = self.weights["embeddings.token_type_embeddings.weight"]
        rows = [
            words[token] + positions[self.first_position + place] + types[0]
            for place, token in enumerate(ids)
        ]
        return self.norm(np.stack(rows), "embeddings.LayerNorm")

    def layer(self, index: int, x: Array) -> Array:
        at = f"encoder.layer.{index}"
        queries, keys, values = (
            self.dense(x, f"{at}.attention.self.{name}") for name in ("query", "key", "value")
        )
        scale = (x.shape[1] // self.heads) ** -0.5
        mixed = attention(queries, keys, values, heads=self.heads, scale=scale)
        attended = self.norm(
            x + self.dense(mixed, f"{at}.attention.output.dense"),
            f"{at}.attention.output.LayerNorm",
        )
        grown = gelu(self.dense(attended, f"{at}.intermediate.dense"))
        return self.norm(
            attended + self.dense(grown, f"{at}.output.dense"), f"{at}.output.LayerNorm"
        )

    def read(self, x: Array) -> Array:
        """Mean over the processed capsule and the text."""
        return np.asarray(sum(row for row in x) / len(x))
