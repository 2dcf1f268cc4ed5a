"""The building blocks of a transformer on one text, [positions, width], in plain NumPy float64.

Everything also takes complex numbers, so that gradients can be had by the complex step: functions
that are not analytic (maximum, error function) treat the imaginary part to first order, which is
exact for steps as small as that one takes.
"""

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]


def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    """``x W^T + b`` with W [out, in]."""
    product: Array = x @ weight.T
    return product if bias is None else product + bias


def softmax(scores: Array) -> Array:
    """Of one vector of scores."""
    grown = np.exp(scores - scores.real.max())
    result: Array = grown / grown.sum()
    return result


def layer_norm(x: Array, weight: Array, bias: Array, epsilon: float) -> Array:
    """Each position to mean 0 and variance 1, then scaled and shifted."""
    rows = []
    for row in x:
        centred = row - row.sum() / len(row)
        variance = (centred * centred).sum() / len(row)
        rows.append(centred / np.sqrt(variance + epsilon) * weight + bias)
    return np.stack(rows)


def rms_norm(x: Array, weight: Array, epsilon: float) -> Array:
    """Each position to root mean square 1, then scaled."""
    rows = [row / np.sqrt((row * row).sum() / len(row) + epsilon) * weight for row in x]
    return np.stack(rows)


def relu(x: Array) -> Array:
    """``max(x, 0)``."""
    return np.where(x.real > 0, x, np.zeros_like(x))


def silu(x: Array) -> Array:
    """``x / (1 + e^-x)``."""
    result: Array = x / (1 + np.exp(-x))
    return result


def gelu(x: Array) -> Array:
    """``x (1 + erf(x / sqrt 2)) / 2``."""
    scaled = x / math.sqrt(2)
    value: Array = np.array([math.erf(number) for number in scaled.real.flat]).reshape(x.shape)
    if np.iscomplexobj(x):
        value = value + 1j * scaled.imag * 2 / math.sqrt(math.pi) * np.exp(-(scaled.real**2))
    result: Array = x * (1 + value) / 2
    return result


def attention(
    queries: Array,
    keys: Array,
    values: Array,
    *,
    heads: int,
    key_heads: int | None = None,
    scale: float,
    bias: Callable[[int, int, int], float] = lambda head, query, key: 0.0,
    causal: bool = False,
) -> Array:
    """Softmax attention, a head and a query at a time.

    Args:
        queries: [Q, heads * width].
        keys: [K, key_heads * width].
        values: shaped as `keys`.
        heads: of the queries.
        key_heads: of the keys, each shared by neighbouring query heads; default as many.
        scale: of the dot products.
        bias: added to the score of (head, query position, key position).
        causal: whether a query sees no key after its own position.

    Returns:
        [Q, heads * width].
    """
    shared = heads // (key_heads or heads)
    width = queries.shape[1] // heads
    out = np.zeros(queries.shape, dtype=np.result_type(queries, keys, values))
    for head in range(heads):
        mine = slice(head * width, (head + 1) * width)
        theirs = slice(head // shared * width, (head // shared + 1) * width)
        for query in range(len(queries)):
            seen = query + 1 if causal else len(keys)
            biases = np.array([bias(head, query, key) for key in range(seen)])
            scores = keys[:seen, theirs] @ queries[query, mine] * scale + biases
            out[query, mine] = softmax(scores) @ values[:seen, theirs]
    return out
