"""From what a backbone reads to the scores of a task's labels."""

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from capsules.backbones.base import LoadedBackbone, WordBackbone
from capsules.core import Reading
from capsules.trie import LabelTrie, reading


class Scorer(Protocol):
    """Scores of one task's labels; their softmax is the probabilities."""

    def reading(self, rows: int) -> Reading | None:
        """What the backbone has to read for so many rows, on the CPU."""
        ...

    def scores(self, features: Tensor) -> Tensor:
        """[B, L] from what was read, [M, D]."""
        ...


class HeadScorer:
    """``logits = W f (+ b)`` with the capsule's own head."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """Take a head.

        Args:
            weight: [L, D].
            bias: [L], or None for families whose head has none.
        """
        self.weight = weight
        self.bias = bias

    def reading(self, rows: int) -> Reading | None:
        """What every such family reads."""
        return None

    def scores(self, features: Tensor) -> Tensor:
        """[B, L] logits of features [B, D]."""
        return functional.linear(features, self.weight, self.bias)


class WordScorer:
    """``log P(label)`` by the label words, see :class:`~capsules.trie.LabelTrie`."""

    def __init__(self, trie: LabelTrie, rows: Tensor) -> None:
        """Take the words of a task.

        Args:
            trie: of its C tokens.
            rows: [C, D], what features are multiplied with to score them.
        """
        self.trie = trie
        self.rows = rows
        self.matrix = trie.matrix().to(rows)

    def reading(self, rows: int) -> Reading | None:
        """The same branches in every row."""
        return reading([self.trie] * rows)

    def scores(self, features: Tensor) -> Tensor:
        """[B, L] log-probabilities of features [B * branches, D], row by row."""
        states = features.unflatten(0, (-1, len(self.trie.branches)))
        counts = [len(branch.tokens) for branch in self.trie.branches]
        steps = [
            functional.linear(states[:, branch], rows).log_softmax(dim=1)
            for branch, rows in enumerate(self.rows.split(counts))
        ]
        return torch.cat(steps, dim=1) @ self.matrix.T


def scorer(
    loaded: LoadedBackbone, tensors: Mapping[str, Tensor], verbalizers: Mapping[str, str] | None
) -> Scorer:
    """The scorer of a task on a backbone.

    Args:
        loaded: the backbone.
        tensors: of the capsule; its head is taken where the backbone does not answer in words.
        verbalizers: label to word, in the order of the labels, where it does.

    Raises:
        ArtefactError: the words cannot be told apart.
    """
    if isinstance(loaded.backbone, WordBackbone):
        assert verbalizers is not None, "an encoder-decoder capsule has verbalizers"
        trie = label_trie(loaded, verbalizers)
        return WordScorer(trie, loaded.backbone.word_rows(trie.tokens))
    return HeadScorer(tensors["head.weight"], tensors.get("head.bias"))


def label_trie(loaded: LoadedBackbone, verbalizers: Mapping[str, str]) -> LabelTrie:
    """The label words of a task as a backbone's tokens.

    Args:
        loaded: a backbone that answers in words.
        verbalizers: label to word, in the order of the labels.

    Raises:
        ArtefactError: the words cannot be told apart.
    """
    assert isinstance(loaded.backbone, WordBackbone), "only such a backbone has words"
    words = {label: loaded.tokeniser.word(word) for label, word in verbalizers.items()}
    return LabelTrie.from_words(words, loaded.backbone.end_token)
