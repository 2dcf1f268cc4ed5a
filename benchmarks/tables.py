"""Shows a result in a terminal."""

from rich.console import Console
from rich.table import Table

from benchmarks.result import Figure, Goal, Result, Series


def show(result: Result, console: Console) -> None:
    """Print the answers, what they were computed from, and what may spoil them."""
    console.print(result.question, style="bold", markup=False)
    console.print(figures_table(result.findings.figures))
    console.print(series_table(result.findings.series))
    for note in result.findings.notes:
        console.print(f"• {note}", markup=False)
    if result.machine.busy:
        console.print(
            f"[yellow]The machine was busy (load average {result.machine.load_average} before the "
            "start): timings are noisy.[/yellow]"
        )


def figures_table(figures: tuple[Figure, ...]) -> Table:
    """A line a figure."""
    table = Table("answer", "value", "95 % interval", "goal", "")
    for one in figures:
        mark = {None: "", True: "[green]met[/green]", False: "[red]missed[/red]"}[one.met]
        interval = f"{plain(one.low)} to {plain(one.high)}"
        table.add_row(one.name, quantity(one.value, one.unit), interval, goal(one.goal), mark)
    return table


def series_table(every: tuple[Series, ...]) -> Table:
    """A line a side and case."""
    table = Table("case", "side", "median", "quartiles", "samples")
    for one in every:
        table.add_row(
            one.case,
            one.side,
            quantity(one.median, one.unit),
            f"{plain(one.q1)} to {plain(one.q3)}",
            str(len(one.samples)),
        )
    return table


def plain(value: float) -> str:
    """A number to three significant digits, or to the unit where it is larger."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def quantity(value: float, unit: str) -> str:
    """A number with its unit."""
    return plain(value) if unit == "ratio" else f"{plain(value)} {unit}"


def goal(bound: Goal | None) -> str:
    """A bound in words."""
    return "" if bound is None else f"{bound.kind} {plain(bound.bound)}"
