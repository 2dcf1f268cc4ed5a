"""The seam between the method and a transformer family."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from capsules.backbones.tokeniser import Tokeniser
from capsules.core import Geometry, TokenBatch

Family = Literal["encoder-only", "decoder-only", "encoder-decoder"]


@dataclass(frozen=True, slots=True)
class BackboneInfo:
    """Which backbone this is.

    Attributes:
        id: name a person knows it by, e.g. `sentence-transformers/all-MiniLM-L6-v2`.
        family: what reads the result, see :class:`Backbone`.
        architecture: the model type of its configuration, e.g. `bert`.
        hidden_size: D.
        num_layers: N.
        parameters: how many weights it has.
        vocab_size: rows of its token embedding.
        max_tokens: longest text in tokens, special tokens included.
        fingerprint: hex sha256 of its weights, tokenizer and configuration.
        path: the folder that it was loaded from.
    """

    id: str
    family: Family
    architecture: str
    hidden_size: int
    num_layers: int
    parameters: int
    vocab_size: int
    max_tokens: int
    fingerprint: str
    path: Path

    @property
    def geometry(self) -> Geometry:
        """The sizes that a capsule has to match."""
        return Geometry(num_layers=self.num_layers, hidden_size=self.hidden_size)


class Backbone(ABC):
    """A frozen transformer, cut at the places the method needs.

    A family answers four questions: where its layers are, what enters the first of them, how the
    sequence runs through them once it has grown by the capsule slots, and what reads the end.
    Nothing here knows about capsules beyond how many slots stand in front.
    """

    family: ClassVar[Family]
    max_tokens: int
    model: PreTrainedModel

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model.eval().requires_grad_(False)

    @classmethod
    @abstractmethod
    def load_model(cls, folder: Path, dtype: torch.dtype) -> PreTrainedModel:
        """Load the transformers model of this family from a folder, on the CPU.

        Raises:
            BackboneError: weights are missing from the checkpoint.
        """

    @property
    @abstractmethod
    def layers(self) -> Sequence[nn.Module]:
        """The N layers to inject, in order; the first positional argument of each is [B, S, D]."""

    @abstractmethod
    def embed(self, tokens: TokenBatch) -> Tensor:
        """E: the hidden states [B, T, D] that enter layer 1, after scaling, position and norm."""

    @abstractmethod
    def run(self, hidden: Tensor, mask: Tensor, slots: int) -> Tensor:
        """Pass the grown sequence through all layers and the final norm, if there is one.

        Args:
            hidden: [B, K + T, D], slots first, a row's unused ones before those it uses.
            mask: [B, K + T] bool, True on real tokens and used slots. What stands elsewhere does
                not matter, but has to stay finite.
            slots: K.

        Returns:
            [B, K + T, D].
        """

    @abstractmethod
    def read(self, hidden: Tensor, mask: Tensor, slots: int) -> Tensor:
        """What the head is applied to: [B, D] in the accumulation dtype.

        Args:
            hidden: [B, K + T, D] from :meth:`run`.
            mask: [B, K + T] bool.
            slots: K.
        """

    def move(self, device: torch.device) -> None:
        """Move the weights to a device."""
        nn.Module.to(self.model, device)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.model.device

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the weights and hidden states."""
        return self.model.dtype


@dataclass(frozen=True, slots=True)
class LoadedBackbone:
    """A backbone with its tokeniser and identity, as :func:`capsules.backbones.load.load` gives."""

    info: BackboneInfo
    backbone: Backbone
    tokeniser: Tokeniser
