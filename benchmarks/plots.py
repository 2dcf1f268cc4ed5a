"""Draws results: medians as bars, quartiles as whiskers, a panel a unit."""

from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.result import Result, Series

WIDTH_IN = 9.0
BAR_IN = 0.22
MARGIN_IN = 1.0
BAR = 0.8
"""Part of its lane that a bar fills."""


def draw(result: Result, path: Path) -> None:
    """Write a result as an SVG file."""
    every = result.findings.series
    units = list(dict.fromkeys(one.unit for one in every))
    heights = [MARGIN_IN + BAR_IN * sum(one.unit == unit for one in every) for unit in units]
    # Text stays text, and the same result gives the same file.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": result.benchmark, "font.size": 9}):
        figure = Figure(figsize=(WIDTH_IN, sum(heights)), layout="constrained")
        panels = figure.subplots(len(units), squeeze=False, height_ratios=heights)[:, 0]
        for unit, axes in zip(units, panels, strict=True):
            panel(axes, unit, [one for one in every if one.unit == unit])
        figure.suptitle(result.question)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def panel(axes: Axes, unit: str, every: list[Series]) -> None:
    """One unit: the sides of a case lie one below the other."""
    sides = list(dict.fromkeys(one.side for one in every))
    cases = list(dict.fromkeys(one.case for one in every))
    lane = BAR / len(sides)
    for number, side in enumerate(sides):
        here = [one for one in every if one.side == side]
        offset = (number - (len(sides) - 1) / 2) * lane
        medians = [one.median for one in here]
        axes.barh(
            [cases.index(one.case) + offset for one in here],
            medians,
            height=lane * BAR,
            label=side,
            xerr=[
                [one.median - one.q1 for one in here],
                [one.q3 - one.median for one in here],
            ],
            error_kw={"linewidth": 0.8},
        )
    axes.set_yticks(range(len(cases)), cases)
    axes.invert_yaxis()
    axes.set_xlabel(unit)
    axes.set_xlim(left=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
