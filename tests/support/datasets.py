"""Labelled rows made up of the tiny tokenizer's words."""

import random
from collections.abc import Sequence

from capsules.core import Example
from capsules.data.base import Dataset
from tests.support.backbones import WORDS


def separable(
    rows: int, *, labels: Sequence[str] = ("no", "yes"), seed: int = 0, longest: int = 8
) -> Dataset:
    """Rows of chance words, with one word among them that gives the label away."""
    chance = random.Random(seed)
    examples = []
    for row in range(rows):
        number = row % len(labels)
        words = chance.choices(WORDS[len(labels) :], k=chance.randint(1, longest))
        words.insert(chance.randint(0, len(words)), WORDS[number])
        examples.append(Example({"text": " ".join(words)}, labels[number]))
    return Dataset.of(examples, labels=labels)
