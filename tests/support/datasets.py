"""Labelled rows made up of the tiny tokenizer's words."""

import random
from collections.abc import Sequence

from capsules.core import Example
from capsules.data.base import Dataset
from tests.support.backbones import WORDS


def separable(
    rows: int, *, labels: Sequence[str] = ("no", "yes"), seed: int = 0, longest: int = 9
) -> Dataset:
    """Rows of 4 to `longest` words, two in three of which are the one that gives the label away."""
    chance = random.Random(seed)
    examples = []
    for row in range(rows):
        number = row % len(labels)
        others = WORDS[len(labels) :]
        length = chance.randint(4, longest)
        words = [WORDS[number] if place % 3 else chance.choice(others) for place in range(length)]
        examples.append(Example({"text": " ".join(words)}, labels[number]))
    return Dataset.of(examples, labels=labels)
