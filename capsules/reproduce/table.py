"""A comparison as tables, in Markdown and for a terminal."""

import statistics
from collections.abc import Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from capsules.reproduce.insight import Insight
from capsules.reproduce.metric import NAMES
from capsules.reproduce.record import Skip
from capsules.reproduce.summary import Cell, Paired

Lines = tuple[list[str], list[list[str]]]
NOTHING = "-"


def markdown(lines: Lines) -> str:
    """A table in Markdown."""
    head, body = lines
    rows = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(one.replace('|', '/') for one in row)} |" for row in rows)


def terminal(title: str, lines: Lines) -> Table:
    """A table for a terminal."""
    head, body = lines
    table = Table(title=title, title_justify="left")
    for name in head:
        table.add_column(name)
    for row in body:
        table.add_row(*map(Text, row))
    return table


def scores(cells: Sequence[Cell]) -> Lines:
    """Test scores: a line a method, a column a set, and the mean where a method has all sets."""
    tasks = list(dict.fromkeys(one.task for one in cells))
    by_key = {(one.method, one.task): one for one in cells}
    body = []
    for method in dict.fromkeys(one.method for one in cells):
        here = [by_key.get((method, task)) for task in tasks]
        means = [one.mean for one in here if one is not None]
        row = [method, *(NOTHING if one is None else spread(one) for one in here)]
        if len(tasks) > 1:
            complete = len(means) == len(tasks)
            row.append(f"{statistics.fmean(means):.3f}" if complete else NOTHING)
        body.append(row)
    return ["method", *tasks, *(["mean"] if len(tasks) > 1 else [])], body


def details(cells: Sequence[Cell]) -> Lines:
    """Everything that is known of each method on each set."""
    head = [
        "set",
        "method",
        "seeds",
        "test score",
        "validation score",
        "trainable parameters",
        "of the backbone",
        "learning rate",
        "epochs",
        "seconds",
        "peak memory",
    ]
    body = [
        [
            one.task,
            one.method,
            str(len(one.seeds)),
            spread(one),
            f"{one.validation:.3f}",
            f"{one.trainable_parameters:,}",
            percentage(one),
            ", ".join(f"{rate:g}" for rate in sorted(set(one.learning_rates))),
            f"{one.epochs:.1f}",
            seconds(one),
            f"{one.peak_memory_mib:,.0f} MiB",
        ]
        for one in cells
    ]
    return head, body


def differences(pairs: Sequence[Paired]) -> Lines:
    """One method minus another, set by set."""
    head = ["set", "seed by seed", "mean", "95 % interval", "one test row weighs", "verdict"]
    body = [
        [
            one.task,
            ", ".join(signed(value) for value in one.differences),
            signed(one.mean),
            interval(one),
            f"{one.one_row:.3f}",
            one.verdict,
        ]
        for one in pairs
    ]
    return head, body


def layers(one: Insight) -> Lines:
    """What was seen inside each layer that a capsule enters."""
    head = [
        "layer",
        "attention to the capsule",
        "to task-only",
        "norm of p",
        "of task-only's p",
        "norm of the average mean",
        "spread of the mean between texts",
    ]
    body = [
        [
            str(layer.layer),
            f"{layer.attention:.3f}",
            f"{layer.attention_task_only:.3f}",
            f"{layer.vector:.2f}",
            f"{layer.vector_task_only:.2f}",
            f"{layer.mean:.2f}",
            f"{layer.spread:.2f}",
        ]
        for layer in one.layers
    ]
    return head, body


def skipped(skips: Sequence[Skip]) -> Lines:
    """What is missing from the tables, and why."""
    body = [
        [
            one.task,
            NOTHING if one.method is None else one.method,
            NOTHING if one.seed is None else str(one.seed),
            one.reason,
        ]
        for one in skips
    ]
    return ["set", "method", "seed", "why it is missing"], body


def notes(cells: Sequence[Cell]) -> list[str]:
    """What the scores are, and how rows differ from the published ones."""
    found = {one.task: one for one in cells}
    lines = [
        f"{task}: {NAMES[one.metric]}, {one.test_rows:,} test rows"
        + ("" if one.note is None else f"; {one.note}, so not comparable with published figures")
        for task, one in found.items()
    ]
    return [f"- {line}." for line in lines]


def shown(cells: Sequence[Cell], skips: Sequence[Skip]) -> Group:
    """The tables for a terminal."""
    parts = [terminal("Test scores", scores(cells))] if cells else []
    if cells:
        parts.append(terminal("Runs", details(cells)))
    if skips:
        parts.append(terminal("Left out", skipped(skips)))
    return Group(*parts)


def spread(one: Cell) -> str:
    """A mean, with its deviation where there are several seeds."""
    return f"{one.mean:.3f}" + ("" if one.deviation is None else f" ± {one.deviation:.3f}")


def percentage(one: Cell) -> str:
    """Two significant digits, as shares reach from thousandths of a per cent to several."""
    return f"{float(f'{one.percentage:.2g}'):g} %"


def seconds(one: Cell) -> str:
    """Of training; where there was a choice of learning rates, of all of them too."""
    own = f"{one.seconds:,.1f}"
    return own if one.search_seconds == one.seconds else f"{own} of {one.search_seconds:,.1f}"


def interval(one: Paired) -> str:
    """The interval of a mean difference."""
    if one.low is None or one.high is None:
        return NOTHING
    return f"{signed(one.low)} to {signed(one.high)}"


def signed(value: float) -> str:
    """A difference; one that is rounded to nothing is no negative one."""
    return f"{value:+z.3f}"
