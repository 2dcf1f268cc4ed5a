"""Draws attention maps side by side, as the method's paper does."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from capsules.analysis.attention import AttentionMap

COLUMN_INCHES = 0.32
ROW_INCHES = 0.28
MARGIN_INCHES = 2.2
DOTS_PER_INCH = 150


def draw(maps: Mapping[str, AttentionMap], path: Path) -> None:
    """Two rows a map, layers by tokens, heads averaged: what tokens pay the capsule, and it them.

    All panels of a row of meaning share one colour scale, so that maps can be compared.

    Args:
        maps: of the same text, by title.
        path: of the PNG file.

    Raises:
        OSError: it cannot be written.
    """
    views = {
        "attention of each token to it": {
            title: averaged(found.to_capsule) for title, found in maps.items()
        },
        "its attention to each token": {
            title: averaged(found.from_capsule) for title, found in maps.items()
        },
    }
    some = next(iter(maps.values()))
    layers, tokens = some.weights.shape[0], len(some.tokens)
    figure = Figure(
        figsize=(
            len(maps) * (tokens * COLUMN_INCHES + MARGIN_INCHES),
            len(views) * (layers * ROW_INCHES + MARGIN_INCHES),
        ),
        layout="constrained",
    )
    panels = figure.subplots(len(views), len(maps), squeeze=False)
    for row, (meaning, shown) in zip(panels, views.items(), strict=True):
        highest = max(float(values.max()) for values in shown.values())
        images = []
        for panel, (title, values) in zip(row, shown.items(), strict=True):
            images.append(
                panel.imshow(values, aspect="auto", cmap="viridis", vmin=0.0, vmax=highest)
            )
            panel.set_title(f"{title}: {meaning}", fontsize=9)
            panel.set_xticks(range(tokens), some.tokens, rotation=90, fontsize=7)
            panel.set_yticks(range(layers), [str(layer + 1) for layer in range(layers)], fontsize=7)
            panel.set_ylabel("layer", fontsize=8)
        figure.colorbar(images[0], ax=list(row), label="share of attention")
    figure.savefig(path, dpi=DOTS_PER_INCH)


def averaged(attention: Tensor) -> "np.ndarray[tuple[int, ...], np.dtype[np.float32]]":
    """[N, T] mean over the heads of [N, heads, T]."""
    values: np.ndarray[tuple[int, ...], np.dtype[np.float32]] = attention.mean(dim=1).numpy()
    return values
