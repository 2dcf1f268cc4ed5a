"""Capsule Prompt-Tuning by its equations, for one text without padding.

S^1 = p^1 + Mean(E)                      (S_^1, H^1) = L_1([S^1 ; E])
S^i = p^i + Mean(S_^{i-1} (+) H^{i-1})   (S_^i, H^i) = L_i([S^i ; H^{i-1}])       i = 2..N

and, where not all layers are injected: no capsule before the first injection, whose mean is over
the text alone; between injections the processed capsule S_^{i-1} stays where it is.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from tests.reference.maths import Array, linear, softmax


class Transformer(Protocol):
    """What the equations need to know of a backbone."""

    num_layers: int

    def embed(self, ids: Sequence[int]) -> Array:
        """E [T, D]: what enters the first layer."""
        ...

    def layer(self, index: int, x: Array) -> Array:
        """L_{index + 1} over all positions, [S, D] to [S, D]."""
        ...

    def read(self, x: Array) -> Array:
        """What the head is applied to, [D], from the last layer's output [S, D]."""
        ...


@dataclass(frozen=True)
class Capsule:
    """What is learned for one task.

    Attributes:
        variant: how tokens are made of it.
        length: k.
        layers: the injected ones, counted from 0, ascending.
        tensors: by name, each [injections, ...].
    """

    variant: str
    length: int
    layers: tuple[int, ...]
    tensors: Mapping[str, Array]


# An array p [N, k, D] alone is the published capsule: addition, in every layer.
Learned: TypeAlias = Capsule | Array | None


def chosen(choice: str | Sequence[int], num_layers: int) -> tuple[int, ...]:
    """The layers, counted from 0, that a choice means; lists count from 1."""
    if not isinstance(choice, str):
        return tuple(number - 1 for number in choice)
    kept = []
    for number in range(1, num_layers + 1):
        in_first_half = 2 * number <= num_layers + 1
        if (
            choice == "all"
            or (choice == "input" and number == 1)
            or (choice == "first-half" and in_first_half)
            or (choice == "latter-half" and not in_first_half)
            or (choice == "odd" and number % 2 == 1)
        ):
            kept.append(number - 1)
    return tuple(kept)


def mean(x: Array) -> Array:
    """Over positions, [S, D] to [D]."""
    return np.asarray(sum(row for row in x) / len(x))


def convolve(x: Array, weight: Array, bias: Array) -> Array:
    """Each channel by itself along the sequence: ``y_t = b + sum_j w_j x_{t + j - 2}``, j = 0..4.

    Args:
        x: [S, D]; zero outside the sequence.
        weight: [D, 5].
        bias: [D].
    """
    rows = []
    for t in range(len(x)):
        row = bias
        for j in range(weight.shape[1]):
            if 0 <= t + j - 2 < len(x):
                row = row + weight[:, j] * x[t + j - 2]
        rows.append(row)
    return np.stack(rows)


def tokens(capsule: Capsule, injection: int, counted: Array) -> list[Array]:
    """The capsule's tokens, each [D], as they enter the layer of an injection.

    Args:
        capsule: what is learned.
        injection: which one, from 0.
        counted: [S, D] the processed capsule, if there is one yet, then the text.
    """
    learned = {name: tensor[injection] for name, tensor in capsule.tensors.items()}
    average = mean(counted)
    if capsule.variant == "instance-only":
        return [average] * capsule.length
    p = list(learned["capsule"])
    assert len(p) == capsule.length
    if capsule.variant == "task-only":
        return p
    if capsule.variant == "prepending":
        return [average, *p]
    if capsule.variant == "extraction":
        average = mean(convolve(counted, learned["extraction.weight"], learned["extraction.bias"]))
    elif capsule.variant == "projection":
        average = learned["projection.up"] @ (learned["projection.down"] @ average)
    else:
        assert capsule.variant == "addition"
    return [vector + average for vector in p]


def states(model: Transformer, ids: Sequence[int], learned: Learned) -> list[Array]:
    """[S_^i ; H^i] of every layer.

    Args:
        model: the backbone.
        ids: token ids of the text.
        learned: the capsule; None runs the bare backbone.

    Returns:
        N arrays [slots + T, D], without slots before the first injection.
    """
    capsule = published(learned)
    text = model.embed(ids)
    processed = text[:0]
    found = []
    for index in range(model.num_layers):
        front = processed
        if index in capsule.layers:
            counted = np.concatenate([processed, text])
            front = np.stack(tokens(capsule, capsule.layers.index(index), counted))
        output = model.layer(index, np.concatenate([front, text]))
        found.append(output)
        processed, text = output[: len(front)], output[len(front) :]
    return found


def published(learned: Learned) -> Capsule:
    """As a capsule: an array is addition in every layer, None one that enters no layer."""
    if learned is None:
        return Capsule("addition", 0, (), {})
    if isinstance(learned, Capsule):
        return learned
    injections, length, _ = learned.shape
    return Capsule("addition", length, tuple(range(injections)), {"capsule": learned})


def features(model: Transformer, ids: Sequence[int], learned: Learned) -> Array:
    """What the head is applied to, [D]."""
    return model.read(states(model, ids, learned)[-1])


def probabilities(
    model: Transformer,
    ids: Sequence[int],
    learned: Learned,
    weight: Array,
    bias: Array | None,
) -> Array:
    """Scores of every label, [L], with the head's weight [L, D] and bias [L]."""
    return softmax(linear(features(model, ids, learned), weight, bias))


def with_tensor(capsule: Capsule, name: str, value: Array) -> Capsule:
    """The capsule with another value of one learned tensor."""
    return Capsule(
        capsule.variant, capsule.length, capsule.layers, {**capsule.tensors, name: value}
    )


STEP = 1e-30


def gradient(function: Callable[[Array], Array], at: Array) -> Array:
    """Of a scalar function, by the complex step ``Im f(x + ih) / h``, exact to rounding."""
    found = np.zeros(at.shape)
    for position in np.ndindex(*at.shape):
        along = np.zeros(at.shape)
        along[position] = 1
        found[position] = derivative(function, at, along)
    return found


def derivative(function: Callable[[Array], Array], at: Array, along: Array) -> float:
    """Of a scalar function in a direction, by the complex step."""
    return float(function(at + 1j * STEP * along).imag / STEP)


def slope(function: Callable[[Array], Array], at: Array, along: Array, step: float) -> float:
    """Of a scalar function in a direction, by central differences."""
    ahead, behind = function(at + step * along), function(at - step * along)
    return float((ahead - behind) / (2 * step))
