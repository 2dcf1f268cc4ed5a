"""Heads of any label counts, applied to the rows of one batch.

The rows of all heads lie in one slab, a label a slot, the labels of a head in a row. So label
counts need not be known in advance, and a batch may mix them as it likes. Where labels are words,
a slot holds the output row of one token that decides between them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, groupby

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from capsules.core import Reading
from capsules.functional import linear_head
from capsules.trie import LabelTrie, reading
from service.engine.slab import Slab
from service.engine.transfer import Slots, to_device

# Heads of up to 2 ** SMALLEST labels are one size: padding costs less than another operation.
SMALLEST = 4


def head_slab(hidden_size: int, device: torch.device) -> Slab:
    """A slab of label rows, `weight` [D] and `bias` [].

    Slot 0 pads: its score is ``0 f - inf``, whose share of a softmax is 0.
    """
    slab = Slab({"weight": (hidden_size,), "bias": ()}, device)
    slab.adopt(slab.larger(1))
    padding = {"weight": torch.zeros(1, hidden_size), "bias": torch.full((1,), -math.inf)}
    slab.write(slab.take(1), padding)
    return slab


def head_rows(weight: Tensor, bias: Tensor | None) -> dict[str, Tensor]:
    """A head as rows of the slab; families without bias get zeros, which changes nothing.

    Args:
        weight: [L, D].
        bias: [L], or None.
    """
    return {"weight": weight, "bias": torch.zeros(weight.shape[0]) if bias is None else bias}


@dataclass(frozen=True, slots=True)
class Heads:
    """The heads of one batch's rows, where they lie in the slab.

    Attributes:
        weight: [R, D], the slab's.
        bias: [R], the slab's.
        starts: for each row the first slot of its head.
        counts: how many slots that is.
        tries: for each row its label words, or None where its head has a slot a label.
    """

    weight: Tensor
    bias: Tensor
    starts: Sequence[int]
    counts: Sequence[int]
    tries: Sequence[LabelTrie | None]

    @property
    def reading(self) -> Reading | None:
        """What the backbone has to read for these rows, on the CPU."""
        tries = [trie for trie in self.tries if trie is not None]
        assert len(tries) in (0, len(self.tries)), "all rows are of one backbone"
        return reading(tries) if tries else None

    @property
    def spans(self) -> list[tuple[int, int]]:
        """First slot and number of slots of each softmax, in the order of the features."""
        spans = []
        for start, count, trie in zip(self.starts, self.counts, self.tries, strict=True):
            if trie is None:
                spans.append((start, count))
                continue
            for branch in trie.branches:
                spans.append((start, len(branch.tokens)))
                start += len(branch.tokens)
        return spans

    def probabilities(self, features: Tensor) -> list[tuple[float, ...]]:
        """Probabilities of every row's labels, each row with its own head.

        ``softmax(W f + b)``; where labels are words, the product over the branches on a label's way.

        Args:
            features: [M, D] what the executor gives: one a row, or one a branch of each row.

        Returns:
            One probability a label for each row. They are not finite where the features are not.
        """
        spans = self.spans
        found = iter(
            self.one_by_one(features, spans)
            if features.device.type == "cpu"
            else self.together(features, spans)
        )
        return [
            next(found) if trie is None else trie.combine([next(found) for _ in trie.branches])
            for trie in self.tries
        ]

    def one_by_one(
        self, features: Tensor, spans: Sequence[tuple[int, int]]
    ) -> list[tuple[float, ...]]:
        """Read each head where it lies: on a CPU, copying it first costs most of the time.

        Each score is a dot product of its own, so it is the same to the bit whatever the other
        rows are, and no thread but this one is woken for it.
        """
        weight, bias = self.weight.numpy(), self.bias.numpy()
        logits = []
        with np.errstate(invalid="ignore", over="ignore"):
            for (start, labels), feature in zip(spans, features.numpy(), strict=True):
                end = start + labels
                logits.append(np.vecdot(weight[start:end], feature) + bias[start:end])
        counts = np.array([labels for _, labels in spans])
        probs = softmax_by_segment(np.concatenate(logits), counts).tolist()
        ends = np.cumsum(counts).tolist()
        return [
            tuple(probs[end - labels : end]) for end, (_, labels) in zip(ends, spans, strict=True)
        ]

    @torch.inference_mode()
    def together(
        self, features: Tensor, spans: Sequence[tuple[int, int]]
    ) -> list[tuple[float, ...]]:
        """Pad heads to a few sizes: on a GPU, the number of operations is what costs."""
        order = sorted(range(len(spans)), key=lambda row: spans[row][1])
        blocks = padded_blocks([spans[row] for row in order])
        index = to_device([np.array(order), *map(np.ravel, blocks)], features.device)
        ordered = features.index_select(0, index[0])
        pieces = []
        row = 0
        for block, slots in zip(blocks, index[1:], strict=True):
            rows, labels = block.shape
            weight = self.weight.index_select(0, slots).view(rows, labels, -1)
            bias = self.bias.index_select(0, slots).view(rows, labels)
            logits = linear_head(ordered[row : row + rows], weight, bias)
            pieces.append(logits.softmax(dim=1).flatten())
            row += rows
        values = torch.cat(pieces).tolist()
        answers: list[tuple[float, ...]] = [()] * len(order)
        lines = chain.from_iterable([block.shape[1]] * block.shape[0] for block in blocks)
        start = 0
        for row, width in zip(order, lines, strict=True):
            answers[row] = tuple(values[start : start + spans[row][1]])
            start += width
        return answers


def padded_blocks(spans: Sequence[tuple[int, int]]) -> list[Slots]:
    """The slots of heads, as one matrix for heads of about the same size.

    Args:
        spans: first slot and labels of each head, ascending by labels.

    Returns:
        Matrices [rows, labels] whose rows, in order, are the heads', padded with slot 0.
    """
    blocks = []
    for _, equals in groupby(spans, key=lambda span: max(SMALLEST, (span[1] - 1).bit_length())):
        group = list(equals)
        block = np.zeros((len(group), group[-1][1]), dtype=np.int64)
        for line, (start, labels) in zip(block, group, strict=True):
            line[:labels] = np.arange(start, start + labels)
        blocks.append(block)
    return blocks


def softmax_by_segment(values: NDArray[np.float32], counts: Slots) -> NDArray[np.float32]:
    """Softmax within each of the segments that lie one after the other.

    Args:
        values: [S].
        counts: [B] length of each segment, at least 1; S in sum.
    """
    starts = np.cumsum(counts) - counts
    # What is not finite stays so, and is found when the answers are looked at.
    with np.errstate(invalid="ignore"):
        shifted = values - np.repeat(np.maximum.reduceat(values, starts), counts)
        powers = np.exp(shifted)
        probs: NDArray[np.float32] = powers / np.repeat(np.add.reduceat(powers, starts), counts)
    return probs
