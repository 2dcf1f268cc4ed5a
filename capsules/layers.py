"""Which layers of a backbone a capsule enters."""

from collections.abc import Sequence
from typing import Literal, get_args

from capsules.errors import OptionError

NamedLayers = Literal["all", "input", "first-half", "latter-half", "odd"]
LayerChoice = NamedLayers | Sequence[int]


def injected_layers(choice: LayerChoice, num_layers: int) -> tuple[int, ...]:
    """The layers that a choice means, as indices from 0, ascending.

    Args:
        choice: `all`; `input`, the first; `first-half`, which has the middle one of an odd number;
            `latter-half`, the others; `odd`, the first, third and so on; or layer numbers
            from 1.
        num_layers: N.

    Raises:
        OptionError: it means no layer, or numbers that are repeated, out of order or out of range.
    """
    half = (num_layers + 1) // 2
    named = {
        "all": range(num_layers),
        "input": range(1),
        "first-half": range(half),
        "latter-half": range(half, num_layers),
        "odd": range(0, num_layers, 2),
    }
    if isinstance(choice, str):
        if choice not in named:
            raise refused(f"{choice!r} is not known")
        indices = tuple(named[choice])
    else:
        indices = tuple(number - 1 for number in choice)
    if not indices:
        raise refused(f"{choice!r} means none of the {num_layers}")
    if list(indices) != sorted(set(indices)):
        raise refused(f"{list(choice)} repeats a layer or is not in ascending order")
    if indices[0] < 0 or indices[-1] >= num_layers:
        raise refused(f"{list(choice)} does not lie within 1 to {num_layers}")
    return indices


def refused(reason: str) -> OptionError:
    """The error for layers that cannot be chosen."""
    names = ", ".join(get_args(NamedLayers))
    return OptionError(
        f"The choice of layers {reason}; give one of {names}, or layer numbers from 1.",
        field="layers",
    )
