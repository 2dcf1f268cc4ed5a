"""Batches of token ids, and the capsules of their rows, made by hand."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from capsules.core import TokenBatch
from capsules.injection import PromptGroup, Prompts
from capsules.variants.registry import variant
from tests.reference.capsule import Capsule, chosen
from tests.support.texts import text

VARIANTS = ("addition", "prepending", "extraction", "projection", "task-only", "instance-only")
KERNEL = 5
RANK = 8


def token_batch(
    texts: Sequence[Sequence[int]], pad_id: int, *, width: int | None = None, left: bool = False
) -> TokenBatch:
    """Rows of token ids, padded to the longest or to `width`, on the right or on the left."""
    width = width or max(len(text) for text in texts)
    ids = torch.full((len(texts), width), pad_id)
    mask = torch.zeros(len(texts), width, dtype=torch.bool)
    for row, given in enumerate(texts):
        places = slice(width - len(given), width) if left else slice(len(given))
        ids[row, places] = torch.tensor(given)
        mask[row, places] = True
    return TokenBatch(input_ids=ids, attention_mask=mask)


def drawn_capsule(
    form: str, length: int, layers: tuple[int, ...], width: int, seed: int = 0
) -> Capsule:
    """A capsule with normal tensors, the same for the same seed.

    Args:
        form: name of the variant.
        length: k.
        layers: the injected ones, counted from 0.
        width: D.
        seed: of the tensors.
    """
    shapes: dict[str, tuple[int, ...]] = {"capsule": (length, width)}
    if form == "extraction":
        shapes |= {"extraction.weight": (width, KERNEL), "extraction.bias": (width,)}
    elif form == "projection":
        shapes |= {"projection.down": (RANK, width), "projection.up": (width, RANK)}
    elif form == "instance-only":
        shapes = {}
    generator = np.random.default_rng(seed)
    tensors = {name: generator.normal(size=(len(layers), *shape)) for name, shape in shapes.items()}
    return Capsule(form, length, layers, tensors)


def torch_tensors(capsule: Capsule, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """Copies of a capsule's tensors as the library takes them."""
    return {name: torch.tensor(value, dtype=dtype) for name, value in capsule.tensors.items()}


def row_prompts(
    capsules: Sequence[Capsule | None],
    tensors: Sequence[dict[str, Tensor]] | None = None,
    *,
    dtype: torch.dtype = torch.float64,
) -> Prompts:
    """The capsule of each row; rows of the same variant, length and layers form a group.

    Args:
        capsules: one a row, None for none.
        tensors: what to use instead of copies of theirs, such as tensors that want a gradient.
        dtype: of these copies.
    """
    given = tensors or [{} if one is None else torch_tensors(one, dtype) for one in capsules]
    kinds: dict[tuple[str, int, tuple[int, ...]], list[int]] = {}
    for row, capsule in enumerate(capsules):
        if capsule is not None:
            kind = (capsule.variant, capsule.length, capsule.layers)
            kinds.setdefault(kind, []).append(row)
    groups = [
        PromptGroup(
            variant=variant(form),
            length=length,
            layers=layers,
            tensors={
                name: torch.stack([given[row][name] for row in rows]) for name in given[rows[0]]
            },
            rows=torch.tensor(rows),
        )
        for (form, length, layers), rows in kinds.items()
    ]
    return Prompts(tuple(groups))


def addition_prompts(capsules: Sequence[Tensor | None]) -> Prompts:
    """The published capsule p [N, k, D] of each row, or None."""
    described = [
        None
        if one is None
        else Capsule(
            "addition", one.shape[1], tuple(range(len(one))), {"capsule": one.detach().numpy()}
        )
        for one in capsules
    ]
    tensors: list[dict[str, Tensor]] = [{} if one is None else {"capsule": one} for one in capsules]
    return row_prompts(described, tensors)


def mixed_rows(num_layers: int, width: int) -> list[tuple[list[int], Capsule | None]]:
    """Texts of many lengths, each with a capsule of another kind or with none."""
    kinds: tuple[tuple[int, str, int, str | list[int]] | tuple[int], ...] = (
        (9, "addition", 1, "all"),
        (1, "extraction", 2, "latter-half"),
        (5,),
        (3, "prepending", 1, "odd"),
        (7, "prepending", 3, "all"),
        (6, "projection", 2, [2, 3]),
        (2, "task-only", 1, "input"),
        (8, "instance-only", 2, [3]),
        (4, "addition", 1, "all"),
        (1,),
        (9, "extraction", 1, "all"),
        (5, "extraction", 2, "latter-half"),
        (1, "instance-only", 1, "first-half"),
    )
    rows: list[tuple[list[int], Capsule | None]] = []
    for seed, kind in enumerate(kinds):
        capsule = None
        if len(kind) == 4:
            layers = chosen(kind[3], num_layers)
            capsule = drawn_capsule(kind[1], kind[2], layers, width, seed)
        rows.append((text(kind[0], seed), capsule))
    return rows
