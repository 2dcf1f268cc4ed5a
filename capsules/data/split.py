"""A validation split that shows every label it can."""

import random
from dataclasses import dataclass

from sklearn.model_selection import train_test_split

from capsules.data.base import Dataset
from capsules.errors import OptionError


@dataclass(frozen=True, slots=True)
class Split:
    """Two disjoint parts of one data set, each in its order and with all its labels."""

    train: Dataset
    validation: Dataset


def split(dataset: Dataset, *, fraction: float = 0.1, seed: int = 0) -> Split:
    """Set a stratified share of `dataset` aside for validation.

    Labels too rare for their share to make a whole row give one row if they have two or more, and
    none if they have one. The same arguments give the same split.

    Args:
        dataset: the rows to divide.
        fraction: share of the rows for validation, above 0 and at most a half.
        seed: of the random choice.

    Raises:
        DataError: all rows have one label, or fewer than two labels have two rows.
        OptionError: `fraction` is out of range.
    """
    if not 0.0 < fraction <= 0.5:
        raise OptionError(
            f"The validation fraction is {fraction}; give one above 0 and at most 0.5.",
            field="fraction",
        )
    dataset.require_divisible()
    by_label: dict[str, list[int]] = {}
    for position, example in enumerate(dataset.examples):
        by_label.setdefault(example.label, []).append(position)
    # In the order of the labels, since that of the rows must not steer the choice of rare ones.
    divisible = [by_label[name] for name in dataset.labels if len(by_label.get(name, ())) > 1]
    rare = [positions for positions in divisible if len(positions) * fraction < 1.0]
    common = [positions for positions in divisible if len(positions) * fraction >= 1.0]
    choice = random.Random(seed)
    chosen = {choice.choice(positions) for positions in rare}
    chosen.update(draw(common, fraction=fraction, seed=seed))
    everything = range(len(dataset))
    return Split(
        train=dataset.subset(i for i in everything if i not in chosen),
        validation=dataset.subset(i for i in everything if i in chosen),
    )


def draw(groups: list[list[int]], *, fraction: float, seed: int) -> list[int]:
    """A stratified share of the positions in `groups`, at least one of each."""
    if not groups:
        return []
    positions = [position for group in groups for position in group]
    strata = [number for number, group in enumerate(groups) for _ in group]
    _, drawn = train_test_split(positions, test_size=fraction, random_state=seed, stratify=strata)
    return [int(position) for position in drawn]
