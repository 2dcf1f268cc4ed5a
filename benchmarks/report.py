"""Writes results up as tables and plots in the documentation."""

import re
from collections.abc import Mapping
from pathlib import Path

from benchmarks.errors import BenchmarkError
from benchmarks.plots import draw
from benchmarks.registry import BENCHMARKS
from benchmarks.result import Figure, Result, Series, read_results
from benchmarks.tables import goal, plain, quantity

DOCUMENT = "performance.md"
IMAGES = "img"
BEGIN = "<!-- result: {name} -->"
END = "<!-- end of result -->"
NOTHING = "Not recorded yet: run `make bench`, then `python -m benchmarks --report`."


def write_report(results: Path, docs: Path) -> list[Path]:
    """Bring the document and its plots up to date with the results.

    Args:
        results: folder of result files.
        docs: folder of the document; what it says beside the tables stays as it is.

    Returns:
        What was written.

    Raises:
        BenchmarkError: a file is no result, or the document has no place for one.
    """
    found = read_results(results, tuple(BENCHMARKS))
    written = []
    for name, result in found.items():
        image = docs / IMAGES / f"{name}.svg"
        draw(result, image)
        written.append(image)
    document = docs / DOCUMENT
    sections = {name: section(found[name]) if name in found else NOTHING for name in BENCHMARKS}
    document.write_text(insert(document.read_text(encoding="utf-8"), sections), encoding="utf-8")
    return [*written, document]


def insert(document: str, sections: Mapping[str, str]) -> str:
    """Put each section between its marks, in place of what was there.

    Raises:
        BenchmarkError: one has no marks.
    """
    for name, text in sections.items():
        begin = BEGIN.format(name=name)
        place = re.compile(f"{re.escape(begin)}\n.*?{re.escape(END)}", re.DOTALL)
        replacement = f"{begin}\n{text}\n{END}"
        document, count = place.subn(lambda _, new=replacement: new, document)  # type: ignore[misc]
        if count != 1:
            raise BenchmarkError(
                f"{DOCUMENT} has {count} places for {name}; write {begin} and {END} around one, "
                "each on a line of its own."
            )
    return document


def section(result: Result) -> str:
    """One result in Markdown."""
    findings = result.findings
    parts = [
        f"**{result.question}**",
        figures_table(findings.figures),
        *(series_table(unit, findings.series) for unit in units(findings.series)),
        f"![{result.benchmark}: medians and quartiles]({IMAGES}/{result.benchmark}.svg)",
        "\n".join(f"- {note}" for note in findings.notes),
        "- " + "\n- ".join(f"{name}: {value}" for name, value in findings.options.items()),
        provenance(result),
    ]
    return "\n\n".join(part for part in parts if part)


def figures_table(figures: tuple[Figure, ...]) -> str:
    """A line a figure."""
    marks = {None: "", True: "met", False: "missed"}
    lines = [
        [
            one.name,
            quantity(one.value, one.unit),
            f"{plain(one.low)} to {plain(one.high)}",
            goal(one.goal),
            marks[one.met],
        ]
        for one in figures
    ]
    return table(["answer", "value", "95 % interval", "goal", ""], lines)


def units(every: tuple[Series, ...]) -> list[str]:
    """The units of series, in the order of their first use."""
    return list(dict.fromkeys(one.unit for one in every))


def series_table(unit: str, every: tuple[Series, ...]) -> str:
    """Medians and quartiles of what is in one unit: a line a case, a column a side."""
    chosen = [one for one in every if one.unit == unit]
    cells = {(one.case, one.side): one for one in chosen}
    sides = list(dict.fromkeys(one.side for one in chosen))
    lines = []
    for case in dict.fromkeys(one.case for one in chosen):
        here = [cells.get((case, side)) for side in sides]
        lines.append([case, *("" if one is None else spread(one) for one in here)])
    return table([f"median (quartiles), {unit}", *sides], lines)


def spread(one: Series) -> str:
    """A median with its quartiles."""
    return f"{plain(one.median)} ({plain(one.q1)} to {plain(one.q3)})"


def provenance(result: Result) -> str:
    """Where and when a result was measured."""
    machine = result.machine
    commit = "no commit" if machine.commit is None else f"commit `{machine.commit[:12]}`"
    packages = ", ".join(f"{name} {version}" for name, version in machine.packages.items())
    accelerator = "" if machine.gpu is None else f", {machine.gpu}"
    return (
        f"Recorded {result.recorded_at:%Y-%m-%d} at {commit}"
        f"{' with changes' if machine.changed else ''} on {machine.cpu} "
        f"({machine.usable_cores} cores, {machine.cpu_capability}, {plain(machine.memory_gib)} GiB"
        f"{accelerator}), {machine.system}, Python {machine.python}, {packages}; "
        f"{machine.torch_threads} threads, load average {machine.load_average} before."
    )


def table(head: list[str], lines: list[list[str]]) -> str:
    """A Markdown table."""
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows)
