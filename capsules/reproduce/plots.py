"""Draws a comparison: what accuracy costs in trainable parameters and in training time."""

from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from capsules.reproduce.method import METHODS
from capsules.reproduce.metric import NAMES
from capsules.reproduce.summary import Cell

PANEL_IN = 4.2
MARGIN_IN = 0.9
BAR_IN = 0.28
COLUMNS = 3
LEGEND_COLUMNS = 5
DPI = 110
# Methods that train equally many parameters are set apart by this factor, or their dots hide.
APART = 1.05
MARKERS = "osD^v<>Pp*"


def draw(cells: Sequence[Cell], folder: Path, prefix: str = "") -> list[Path]:
    """Write the plots of a comparison as PNG files.

    The same cells give the same files.

    Args:
        cells: at least one.
        folder: where to; it is made if need be.
        prefix: of the files' names.

    Returns:
        What was written.

    Raises:
        OSError: it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    plots: dict[str, Callable[[Sequence[Cell]], Figure]] = {
        "parameters": parameters,
        "time": time,
    }
    written = []
    for name, plot in plots.items():
        path = folder / f"{prefix}{name}.png"
        plot(cells).savefig(path, format="png", dpi=DPI, metadata={"Software": None})
        written.append(path)
    return written


def parameters(cells: Sequence[Cell]) -> Figure:
    """Test score against trainable parameters, a panel a set; whiskers are deviations."""
    figure, panels = grid(cells, PANEL_IN)
    shown = {}
    for axes, here in panels:
        for one, place in zip(here, places(here), strict=True):
            shown[one.method] = axes.errorbar(
                place,
                one.mean,
                yerr=one.deviation,
                fmt=marker(one.method),
                capsize=3,
                color=colour(one.method),
            ).lines[0]
        axes.set_xscale("log")
        axes.set_xlabel("trainable parameters (equal ones set apart)")
        axes.set_ylabel(f"test {NAMES[here[0].metric]}")
        axes.grid(alpha=0.3)
    figure.legend(
        list(shown.values()),
        list(shown),
        loc="outside lower center",
        ncols=min(len(shown), LEGEND_COLUMNS),
        frameon=False,
    )
    return figure


def time(cells: Sequence[Cell]) -> Figure:
    """Seconds of training, a panel a set; paler, with all learning rates that were tried."""
    methods = len({one.method for one in cells})
    figure, panels = grid(cells, MARGIN_IN + BAR_IN * methods)
    for axes, here in panels:
        names = [one.method for one in here]
        colours = [colour(one.method) for one in here]
        axes.barh(names, [one.search_seconds for one in here], color=colours, alpha=0.3)
        axes.barh(names, [one.seconds for one in here], color=colours)
        axes.invert_yaxis()
        axes.set_xlabel("seconds of training")
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def grid(cells: Sequence[Cell], height: float) -> tuple[Figure, list[tuple[Axes, list[Cell]]]]:
    """A figure with a panel for each set, and what goes there."""
    tasks = list(dict.fromkeys(one.task for one in cells))
    columns = min(len(tasks), COLUMNS)
    rows = -(-len(tasks) // columns)
    size = (PANEL_IN * 1.2 * columns, height * rows + MARGIN_IN)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for unused in axes[len(tasks) :]:
        unused.set_visible(False)
    panels = []
    for one, task in zip(axes, tasks, strict=False):
        one.set_title(task)
        panels.append((one, [cell for cell in cells if cell.task == task]))
    return figure, panels


def places(cells: Sequence[Cell]) -> list[float]:
    """Where the methods of one set stand: their parameters, equal ones set apart around them."""
    groups: dict[int, list[str]] = {}
    for one in cells:
        groups.setdefault(one.trainable_parameters, []).append(one.method)
    found = []
    for one in cells:
        group = groups[one.trainable_parameters]
        step = group.index(one.method) - (len(group) - 1) / 2
        found.append(one.trainable_parameters * APART**step)
    return found


def marker(method: str) -> str:
    """The same for a method in every panel."""
    return MARKERS[list(METHODS).index(method)]


def colour(method: str) -> str:
    """The same for a method in every panel and plot."""
    return f"C{list(METHODS).index(method)}"
