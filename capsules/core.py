"""The small frozen records that every room of the library shares."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

# Longest label: one limit, since a longer one could be trained on but not shipped.
MAX_LABEL_CHARACTERS = 256


@dataclass(frozen=True, slots=True)
class Geometry:
    """The sizes of a backbone that a capsule has to match.

    Attributes:
        num_layers: N, transformer layers that can be injected.
        hidden_size: D, width of the hidden states.
    """

    num_layers: int
    hidden_size: int


@dataclass(frozen=True, slots=True)
class Example:
    """One labelled row: the template's named inputs and the label."""

    inputs: Mapping[str, str]
    label: str


@dataclass(frozen=True, slots=True)
class Prediction:
    """One answer: the winning label and the probability of every label, in head order."""

    label: str
    score: float
    probs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Encoding:
    """A tokenised text, ready for the backbone.

    Attributes:
        input_ids: token ids with the tokenizer's special tokens, unpadded.
        truncated: whether tokens were cut off to fit the capsule's `max_length`.
    """

    input_ids: tuple[int, ...]
    truncated: bool


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """Rows for one forward pass, padded on either side.

    Attributes:
        input_ids: [B, T] int64.
        attention_mask: [B, T] bool, True on real tokens.
        places: [B, T] int64, each token's place in its text, from 0; None where the rows are texts,
            so that it is told by where a token stands.
    """

    input_ids: "torch.Tensor"
    attention_mask: "torch.Tensor"
    places: "torch.Tensor | None" = None

    def __len__(self) -> int:
        return self.input_ids.shape[0]

    def to(self, device: "torch.device") -> "TokenBatch":
        """The same on a device."""
        return TokenBatch(
            input_ids=self.input_ids.to(device, non_blocking=True),
            attention_mask=self.attention_mask.to(device, non_blocking=True),
        )


@dataclass(frozen=True, slots=True)
class Reading:
    """Where to read the answers of a batch from a backbone that answers in words.

    The decoder runs over paths: the start token and the first tokens of an answer. It is read
    wherever the next token is to be decided.

    Attributes:
        rows: [P] int64, the row of the batch whose text a path answers.
        prefixes: [P, W] int64, the tokens of each path after the start token, padded on the right.
        paths: [M] int64, the path of each state to read.
        steps: [M] int64, the position in the path: 0 is the start token's.
    """

    rows: "torch.Tensor"
    prefixes: "torch.Tensor"
    paths: "torch.Tensor"
    steps: "torch.Tensor"

    def to(self, device: "torch.device") -> "Reading":
        """The same on a device."""
        return Reading(
            rows=self.rows.to(device, non_blocking=True),
            prefixes=self.prefixes.to(device, non_blocking=True),
            paths=self.paths.to(device, non_blocking=True),
            steps=self.steps.to(device, non_blocking=True),
        )
