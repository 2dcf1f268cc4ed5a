"""Rows that say the same thing twice, or two things at once."""

from collections.abc import Mapping
from dataclasses import dataclass

from capsules.data.base import Dataset


@dataclass(frozen=True, slots=True)
class DuplicateGroup:
    """Rows with the same inputs.

    Attributes:
        positions: indices into the data set's examples, ascending.
        labels: their distinct labels, sorted.
    """

    positions: tuple[int, ...]
    labels: tuple[str, ...]

    @property
    def conflicting(self) -> bool:
        """Whether the rows disagree about the label."""
        return len(self.labels) > 1


def duplicates(dataset: Dataset) -> tuple[DuplicateGroup, ...]:
    """Groups of two or more rows with exactly the same inputs, by first position."""
    groups: dict[frozenset[tuple[str, str]], list[int]] = {}
    for position, example in enumerate(dataset.examples):
        groups.setdefault(key(example.inputs), []).append(position)
    return tuple(
        DuplicateGroup(
            positions=tuple(positions),
            labels=tuple(sorted({dataset.examples[i].label for i in positions})),
        )
        for positions in groups.values()
        if len(positions) > 1
    )


def overlap(train: Dataset, other: Dataset) -> tuple[int, ...]:
    """Positions in `other` whose inputs occur in `train`, and so tell nothing about new texts."""
    seen = {key(example.inputs) for example in train.examples}
    return tuple(i for i, example in enumerate(other.examples) if key(example.inputs) in seen)


def key(inputs: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    """What makes two rows' inputs equal, whatever the order of their fields."""
    return frozenset(inputs.items())
