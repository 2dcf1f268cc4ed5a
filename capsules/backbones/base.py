"""The seam between the method and a transformer family."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, Protocol

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from capsules.backbones.attention import Bins, Sight
from capsules.backbones.ends import Ends
from capsules.backbones.source import BackboneSource
from capsules.backbones.tokeniser import Tokeniser
from capsules.core import Geometry, Reading, TokenBatch

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
        path: the folder or file that it was loaded from.
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


class Entry(Protocol):
    """What a family's loop over its layers asks about the capsules of one forward pass.

    Rows are padded, [B, K + T, D], or packed: one after the other in one sequence, [1, P, D].
    """

    @property
    def positions(self) -> Tensor:
        """Int64, each place's number among the real tokens and used slots of its row."""
        ...

    @property
    def ends(self) -> Ends:
        """Reads the rows after the last layer."""
        ...

    def mask(self, layer: int) -> Tensor | Bins:
        """[B, K + T] bool, what positions of the layer of that index may be attended to, or bins.

        It is the same object as long as nothing changes. What stands where it is False does not
        matter, but has to stay finite.
        """
        ...

    def enter(self, layer: int, hidden: Tensor) -> Tensor:
        """The input of the layer of that index, capsules put in."""
        ...


class Backbone(ABC):
    """A frozen transformer, cut at the places the method needs.

    A family answers four questions: where its layers are, what enters the first of them, how the
    sequence runs through them once it has grown by the capsule slots, and what reads the end.
    Nothing here knows about capsules beyond that slots stand in front.

    Attributes:
        family: what reads the result.
        packs: whether rows can be packed into one sequence, see
            :class:`capsules.backbones.attention.Bins`.
        max_tokens: longest text in tokens, special tokens included.
        model: the transformers model.
    """

    family: ClassVar[Family]
    packs: ClassVar[bool] = True
    max_tokens: int
    model: PreTrainedModel

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model.eval().requires_grad_(False)

    @classmethod
    @abstractmethod
    def load_model(cls, source: BackboneSource, dtype: torch.dtype) -> PreTrainedModel:
        """Load the transformers model of this family, on the CPU.

        Raises:
            BackboneError: weights are missing from the checkpoint.
        """

    @property
    @abstractmethod
    def layers(self) -> Sequence[nn.Module]:
        """The N layers that can be injected, in order."""

    @property
    @abstractmethod
    def attentions(self) -> Sequence[nn.Module]:
        """Each layer's self-attention; in its plain implementation, its last output is the weights.

        They are [B, heads, S, S].
        """

    @property
    def words(self) -> Tensor:
        """The embeddings of tokens, [vocabulary, D]."""
        return self.model.get_input_embeddings().get_parameter("weight")

    @property
    def hidden_size(self) -> int:
        """D, width of the hidden states."""
        return self.words.shape[1]

    @property
    def vocabulary(self) -> int:
        """How many token ids there are."""
        return self.words.shape[0]

    @property
    def sights(self) -> Sequence[Sight]:
        """How each layer attends: here, every place to every other."""
        return [Sight()] * len(self.layers)

    @abstractmethod
    def embed(self, tokens: TokenBatch) -> Tensor:
        """E: the hidden states [B, T, D] that enter layer 1, after scaling, position and norm."""

    @abstractmethod
    def run(self, hidden: Tensor, entry: Entry) -> Tensor:
        """Pass the grown sequence through all layers and the final norm, if there is one.

        Args:
            hidden: [B, K + T, D], slots first, a row's unused ones before those it uses, then the
                text, then padding; or packed, [1, P, D].
            entry: asked on entry of every layer.

        Returns:
            As `hidden`.
        """

    @abstractmethod
    def read(self, hidden: Tensor, ends: Ends, reading: Reading | None) -> Tensor:
        """The features that labels are scored by, in the accumulation dtype.

        Args:
            hidden: from :meth:`run`.
            ends: finds the rows in it.
            reading: for families that answer in words, what to read; None reads what the first
                word is decided by. Others have no choice.

        Returns:
            [B, D]; with a reading, [M, D].
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


class WordBackbone(Backbone):
    """A backbone that answers in words of its vocabulary, so that capsules need no head.

    Attributes:
        end_token: id of the token that ends an answer.
    """

    end_token: int

    @abstractmethod
    def word_rows(self, tokens: Sequence[int]) -> Tensor:
        """What features are multiplied with to score tokens, [n, D] in the accumulation dtype.

        Args:
            tokens: n ids.
        """


@dataclass(frozen=True, slots=True)
class LoadedBackbone:
    """A backbone with its tokeniser and identity, as :func:`capsules.backbones.load.load` gives."""

    info: BackboneInfo
    backbone: Backbone
    tokeniser: Tokeniser
