"""Every way of saying which layers a capsule enters."""

from typing import get_args

import pytest

from capsules.errors import OptionError
from capsules.layers import LayerChoice, NamedLayers, injected_layers

# By layer numbers, which count from 1, for backbones of one to seven layers.
NAMED: dict[str, list[list[int]]] = {
    "all": [
        *([1], [1, 2], [1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4, 5]),
        *([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6, 7]),
    ],
    "input": [[1]] * 7,
    "first-half": [[1], [1], [1, 2], [1, 2], [1, 2, 3], [1, 2, 3], [1, 2, 3, 4]],
    "latter-half": [[], [2], [3], [3, 4], [4, 5], [4, 5, 6], [5, 6, 7]],
    "odd": [[1], [1], [1, 3], [1, 3], [1, 3, 5], [1, 3, 5], [1, 3, 5, 7]],
}
NONE_LEFT = ("latter-half", 1)
CASES = [
    (name, num_layers, layers)
    for name, by_depth in NAMED.items()
    for num_layers, layers in enumerate(by_depth, start=1)
    if (name, num_layers) != NONE_LEFT
]


def test_every_name_is_told_here() -> None:
    assert set(NAMED) == set(get_args(NamedLayers))


@pytest.mark.parametrize(("name", "num_layers", "layers"), CASES)
def test_a_name_means_the_layers_it_says(
    name: LayerChoice, num_layers: int, layers: list[int]
) -> None:
    assert injected_layers(name, num_layers) == tuple(layer - 1 for layer in layers)


@pytest.mark.parametrize("numbers", [[1], [6], [1, 6], [2, 3, 5], [1, 2, 3, 4, 5, 6]])
def test_numbers_count_from_one(numbers: list[int]) -> None:
    expected = tuple(number - 1 for number in numbers)
    assert injected_layers(numbers, 6) == expected
    assert injected_layers(tuple(numbers), 6) == expected


@pytest.mark.parametrize(
    ("choice", "num_layers", "says"),
    [
        ("even", 6, "'even' is not known"),
        ("All", 6, "'All' is not known"),
        ("1", 6, "'1' is not known"),
        ("", 6, "'' is not known"),
        ("latter-half", 1, "'latter-half' means none of the 1"),
        ([], 6, "[] means none of the 6"),
        ([0], 6, "[0] does not lie within 1 to 6"),
        ([-1, 2], 6, "[-1, 2] does not lie within 1 to 6"),
        ([7], 6, "[7] does not lie within 1 to 6"),
        ([1, 3, 9], 6, "[1, 3, 9] does not lie within 1 to 6"),
        ([3, 2], 6, "[3, 2] repeats a layer or is not in ascending order"),
        ([2, 2], 6, "[2, 2] repeats a layer or is not in ascending order"),
        ((1, 3, 2), 6, "[1, 3, 2] repeats a layer or is not in ascending order"),
    ],
    ids=str,
)
def test_a_choice_that_means_nothing_is_refused(
    choice: LayerChoice, num_layers: int, says: str
) -> None:
    with pytest.raises(OptionError) as refused:
        injected_layers(choice, num_layers)
    assert refused.value.field == "layers"
    assert says in refused.value.message
    assert refused.value.message.endswith(
        "; give one of all, input, first-half, latter-half, odd, or layer numbers from 1."
    )
