"""The runs of one configuration in Markdown."""

from collections import Counter
from collections.abc import Sequence

from capsules.reproduce.claims import CAPSULE, conclusion
from capsules.reproduce.record import Row, Skip
from capsules.reproduce.suite import SUITES
from capsules.reproduce.summary import cells, paired
from capsules.reproduce.table import details, differences, markdown, notes, scores, skipped

INSTANCE = "task-only"
# Stands for the folder of the sets, which is wherever the reader has it.
DATA = "DATA"


def summary(rows: Sequence[Row], skips: Sequence[Skip]) -> str:
    """The page that a comparison leaves beside its runs."""
    blocks = ["# Comparison"]
    if rows:
        blocks.append(section(rows))
        pairs = paired(rows, CAPSULE, INSTANCE)
        if pairs:
            blocks += [
                f"The capsule minus {INSTANCE}, on the same rows in the same order:",
                markdown(differences(pairs)),
                conclusion(pairs),
            ]
    else:
        blocks.append("No run finished.")
    if skips:
        blocks += ["Left out:", markdown(skipped(skips))]
    return "\n\n".join(blocks) + "\n"


def section(rows: Sequence[Row], name: str | None = None) -> str:
    """Scores, figures, where they come from, and how to get them again.

    Args:
        rows: the runs of one configuration.
        name: what other parts of the page call them, if anything.
    """
    found = cells(rows)
    backbone, settings = rows[0].configuration.backbone, rows[0].configuration.settings
    tokens = "one capsule token" if settings.length == 1 else f"{settings.length} capsule tokens"
    return "\n\n".join(
        [
            f"### {backbone.id}" if name is None else f"### {name}: {backbone.id}",
            f"Up to {settings.epochs} epochs, stopped after {settings.patience} without a better "
            f"validation accuracy; {settings.batch_size} rows a step; {tokens} a layer; "
            f"at most {settings.max_length} tokens. Test scores, mean ± deviation over seeds:",
            markdown(scores(found)),
            "\n".join(notes(found)),
            markdown(details(found)),
            provenance(rows),
            "\n".join(["```sh", *commands(rows), "```"]),
        ]
    )


def provenance(rows: Sequence[Row]) -> str:
    """Where, when and with what the runs were made."""
    places = dict.fromkeys(
        f"{row.machine.device} ({counted(row.machine.cores, 'core')}, "
        f"{counted(row.machine.threads, 'thread')}), "
        f"{row.machine.system}, Python {row.machine.python}, "
        + ", ".join(f"{name} {version}" for name, version in row.machine.packages.items())
        for row in rows
    )
    days = sorted({f"{row.recorded_at:%Y-%m-%d}" for row in rows})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return f"{counted(len(rows), 'run')}, {when}, on {'; '.join(places)}."


def commands(rows: Sequence[Row]) -> list[str]:
    """What to type to make the same runs again, a line for sets that share methods and seeds."""
    wanted: dict[tuple[str, str, int], list[str]] = {}
    for task in dict.fromkeys(cell.task for cell in cells(rows)):
        here = [row for row in rows if row.task == task]
        methods = ",".join(cell.method for cell in cells(here))
        seeds = max(row.seed for row in here) + 1
        wanted.setdefault((home(task), methods, seeds), []).append(task)
    return [
        f"capsule reproduce --suite {suite} --tasks {','.join(tasks)} --methods {methods} "
        f"--seeds {seeds} {options([row for row in rows if row.task in tasks])}"
        for (suite, methods, seeds), tasks in wanted.items()
    ]


def options(rows: Sequence[Row]) -> str:
    """The options that all runs share; learning rates of most methods, then those of the others."""
    backbone, settings = rows[0].configuration.backbone, rows[0].configuration.settings
    layers = settings.layers if isinstance(settings.layers, str) else listed(settings.layers)
    chosen = {row.method: row.rates for row in rows}
    general = Counter(chosen.values()).most_common(1)[0][0]
    own = [
        f"--learning-rates {method}={listed(rates)}"
        for method, rates in chosen.items()
        if rates != general
    ]
    return " ".join(
        [
            f"--data {DATA}",
            f"--backbone {backbone.specification}",
            f"--epochs {settings.epochs}",
            f"--patience {settings.patience}",
            f"--batch-size {settings.batch_size}",
            f"--length {settings.length}",
            f"--layers {layers}",
            f"--max-length {settings.max_length}",
            f"--learning-rates {listed(general)}",
            *own,
        ]
    )


def counted(number: int, noun: str) -> str:
    """A number with its noun."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def listed(numbers: Sequence[float]) -> str:
    """Numbers as an option takes them."""
    return ",".join(f"{number:g}" for number in numbers)


def home(task: str) -> str:
    """The suite that a set is in."""
    suites = [name for name, tasks in SUITES.items() if task in {one.name for one in tasks}]
    return suites[0] if suites else "single"
