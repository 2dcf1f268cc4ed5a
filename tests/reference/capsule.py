"""Capsule Prompt-Tuning by its equations, for one text without padding.

S^1 = p^1 + Mean(E)                      (S_^1, H^1) = L_1([S^1 ; E])
S^i = p^i + Mean(S_^{i-1} (+) H^{i-1})   (S_^i, H^i) = L_i([S^i ; H^{i-1}])       i = 2..N
"""

from collections.abc import Callable, Sequence
from typing import Protocol

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


def states(model: Transformer, ids: Sequence[int], capsule: Array | None) -> list[Array]:
    """[S_^i ; H^i] of every layer.

    Args:
        model: the backbone.
        ids: token ids of the text.
        capsule: p [N, k, D]; None runs the bare backbone.

    Returns:
        N arrays [k + T, D].
    """
    slots = 0 if capsule is None else capsule.shape[1]
    text = model.embed(ids)
    processed: Array | None = None
    found = []
    for index in range(model.num_layers):
        sequence = text
        if capsule is not None:
            counted = text if processed is None else np.concatenate([processed, text])
            mean = sum(row for row in counted) / len(counted)
            tokens = [capsule[index, j] + mean for j in range(slots)]
            sequence = np.concatenate([np.stack(tokens), text])
        output = model.layer(index, sequence)
        found.append(output)
        processed, text = output[:slots], output[slots:]
    return found


def features(model: Transformer, ids: Sequence[int], capsule: Array | None) -> Array:
    """What the head is applied to, [D]."""
    return model.read(states(model, ids, capsule)[-1])


def probabilities(
    model: Transformer,
    ids: Sequence[int],
    capsule: Array,
    weight: Array,
    bias: Array | None,
) -> Array:
    """Scores of every label, [L], with the head's weight [L, D] and bias [L]."""
    return softmax(linear(features(model, ids, capsule), weight, bias))


def gradient(function: Callable[[Array], Array], at: Array) -> Array:
    """Of a scalar function, by the complex step ``Im f(x + ih) / h``, exact to rounding."""
    step = 1e-30
    found = np.zeros(at.shape)
    for position in np.ndindex(*at.shape):
        moved = at.astype(np.complex128)
        moved[position] += 1j * step
        found[position] = function(moved).imag / step
    return found


def slope(function: Callable[[Array], Array], at: Array, along: Array, step: float) -> float:
    """Of a scalar function in a direction, by central differences."""
    ahead, behind = function(at + step * along), function(at - step * along)
    return float((ahead - behind) / (2 * step))
