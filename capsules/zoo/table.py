"""The accuracy table of the shipped capsules, as the README shows it."""

import json
import statistics
from collections.abc import Iterable, Sequence
from importlib.resources import files

from capsules.zoo.build import Measured, Result

BEGIN, END = "<!-- accuracy -->", "<!-- /accuracy -->"
HEADER = (
    "| task | labels | train / test rows | capsule, test accuracy | linear head, test accuracy "
    "| capsule, test macro-F1 | capsule, validation accuracy | file |",
    "|---|---|---|---|---|---|---|---|",
)


def results() -> list[Result]:
    """The committed results, by task and seed."""
    folder = files("capsules.zoo") / "results"
    found = [
        Result.model_validate(json.loads(file.read_bytes()))
        for file in folder.iterdir()
        if file.name.endswith(".json")
    ]
    return sorted(found, key=lambda result: (result.task, result.seed))


def markdown(found: Iterable[Result]) -> str:
    """One row a task; where there are several seeds, their mean and standard deviation."""
    by_task: dict[str, list[Result]] = {}
    for result in found:
        by_task.setdefault(result.task, []).append(result)
    return "\n".join([*HEADER, *(line(runs) for runs in by_task.values())])


def line(runs: Sequence[Result]) -> str:
    """The row of one task."""
    first = runs[0]
    capsules = [run.capsule for run in runs]
    cells = (
        first.task,
        str(first.labels),
        f"{first.rows['train']:,} / {first.rows['test']:,}",
        f"**{spread(capsules, 'test_accuracy')}**",
        spread([run.linear_head for run in runs], "test_accuracy"),
        spread(capsules, "test_macro_f1"),
        spread(capsules, "validation_accuracy"),
        f"{first.bytes / 1024:.0f} KiB",
    )
    return f"| {' | '.join(cells)} |"


def spread(measured: Sequence[Measured], name: str) -> str:
    """A figure, with its deviation over the seeds where there are several."""
    values = [getattr(one, name) for one in measured]
    mean = f"{statistics.fmean(values):.3f}"
    if len(values) == 1:
        return mean
    return f"{mean} ± {statistics.stdev(values):.3f} ({len(values)} seeds)"


def insert(document: str, table: str) -> str:
    """A document with the table between its two marks.

    Raises:
        ValueError: it lacks the marks.
    """
    before, found, rest = document.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise ValueError(f"the document has no place for the table: {BEGIN} … {END}")
    return f"{before}{BEGIN}\n{table}\n{END}{after}"
