"""Answers in words: the chance of each label, when only labels can be said."""

from collections.abc import Callable, Sequence

import numpy as np

from tests.reference.maths import Array, softmax


def following(labels: Sequence[Sequence[int]], prefix: Sequence[int], end: int) -> list[int]:
    """The tokens that can come after the first ones of an answer; `end` where it is complete."""
    found = set()
    for label in labels:
        spelled = [*label, end]
        if spelled[: len(prefix)] == list(prefix):
            found.add(spelled[len(prefix)])
    return sorted(found)


def label_probabilities(
    logits: Callable[[Sequence[int]], Array], labels: Sequence[Sequence[int]], end: int
) -> Array:
    """For each label the product, over its tokens and its end, of their share of what can come.

    Args:
        logits: [V] scores of the token after a prefix.
        labels: token ids of each, without the end.
        end: token id that ends an answer.
    """
    found = []
    for label in labels:
        spelled = [*label, end]
        chance = np.ones(())
        for place, token in enumerate(spelled):
            prefix = spelled[:place]
            possible = following(labels, prefix, end)
            shares = softmax(logits(prefix)[possible])
            chance = chance * shares[possible.index(token)]
        found.append(chance)
    return np.stack(found)
