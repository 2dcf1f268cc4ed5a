"""The building blocks of a transformer on one text, [positions, width], in plain NumPy float64.

Everything also takes complex numbers, so that gradients can be had by the complex step: functions
that are not analytic (maximum, error function) treat the imaginary part to first order, which is
exact for steps as small as that one takes.
"""

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]


def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    """``x W^T + b`` with W [out, in]."""
    product: Array = x @ weight.T
    return product if bias is None else product + bias


def softmax(scores: Array, allowed: Array | None = None) -> Array:
    """Of each vector of scores along the last axis, over the `allowed` ones (default all)."""
    seen = np.ones(scores.shape, dtype=bool) if allowed is None else allowed
    highest = np.where(seen, scores.real, -np.inf).max(axis=-1, keepdims=True)
    grown = np.where(seen, np.exp(np.where(seen, scores, highest) - highest), 0)
    result: Array = grown / grown.sum(axis=-1, keepdims=True)
    return result


def layer_norm(x: Array, weight: Array, bias: Array, epsilon: float) -> Array:
    """Each position to mean 0 and variance 1, then scaled and shifted."""
    width = x.shape[-1]
    centred = x - x.sum(axis=-1, keepdims=True) / width
    variance = (centred * centred).sum(axis=-1, keepdims=True) / width
    result: Array = centred / np.sqrt(variance + epsilon) * weight + bias
    return result


def rms_norm(x: Array, weight: Array, epsilon: float) -> Array:
    """Each position to root mean square 1, then scaled."""
    square = (x * x).sum(axis=-1, keepdims=True) / x.shape[-1]
    result: Array = x / np.sqrt(square + epsilon) * weight
    return result


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


def gelu_tanh(x: Array) -> Array:
    """``x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2``."""
    result: Array = x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))) / 2
    return result


def causal(length: int, window: int | None = None) -> Array:
    """[query, key] bool: a query sees the `window` positions that end with its own, or all of them."""
    reach = length if window is None else window
    seen = [[0 <= query - key < reach for key in range(length)] for query in range(length)]
    return np.array(seen)


def rotate(x: Array, heads: int, frequencies: Sequence[float]) -> Array:
    """Turn each pair (j, j + width / 2) of a head by ``position * frequencies[j]``.

    Args:
        x: [positions, heads * width], the first at position 0.
        heads: how many.
        frequencies: width / 2 angles a position.
    """
    width = x.shape[1] // heads
    half = width // 2
    angles = np.outer(np.arange(len(x)), frequencies)
    out = np.zeros_like(x)
    for start in range(0, x.shape[1], width):
        one, other = slice(start, start + half), slice(start + half, start + width)
        out[:, one] = x[:, one] * np.cos(angles) - x[:, other] * np.sin(angles)
        out[:, other] = x[:, other] * np.cos(angles) + x[:, one] * np.sin(angles)
    return out


def attention(
    queries: Array,
    keys: Array,
    values: Array,
    *,
    heads: int,
    key_heads: int | None = None,
    scale: float,
    bias: Array | None = None,
    allowed: Array | None = None,
) -> Array:
    """Softmax attention, a head at a time.

    Args:
        queries: [Q, heads * width].
        keys: [K, key_heads * width].
        values: shaped as `keys`.
        heads: of the queries.
        key_heads: of the keys, each shared by neighbouring query heads; default as many.
        scale: of the dot products.
        bias: [heads, Q, K] added to the scores.
        allowed: [Q, K] bool, which keys a query sees; default all.

    Returns:
        [Q, heads * width].
    """
    shared = heads // (key_heads or heads)
    width = queries.shape[1] // heads
    out = np.zeros(queries.shape, dtype=np.result_type(queries, keys, values))
    for head in range(heads):
        mine = slice(head * width, (head + 1) * width)
        theirs = slice(head // shared * width, (head // shared + 1) * width)
        scores = queries[:, mine] @ keys[:, theirs].T * scale
        if bias is not None:
            scores = scores + bias[head]
        out[:, mine] = softmax(scores, allowed) @ values[:, theirs]
    return out
