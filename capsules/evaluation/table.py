"""An evaluation as tables for a terminal."""

from rich.console import Group
from rich.table import Table
from rich.text import Text

from capsules.evaluation.metrics import ClassScore, Report

# Wider matrices do not fit a terminal of 100 columns.
MAX_MATRIX_LABELS = 10
MAX_CONFUSIONS = 15
COLUMN_WIDTH = 14


def report_tables(report: Report) -> Group:
    """Summary, per-class table and confusions, one below the other."""
    return Group(summary_table(report), per_class_table(report), confusion_table(report))


def summary_table(report: Report) -> Table:
    """Accuracy, macro F1, and what they were measured on."""
    table = Table(title="Evaluation", show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_row("accuracy", f"{report.accuracy:.4f}")
    table.add_row("macro F1", f"{report.macro_f1:.4f}")
    table.add_row("examples", f"{report.examples:,}")
    table.add_row("labels", f"{len(report.labels):,}")
    return table


def per_class_table(report: Report, *, limit: int | None = None) -> Table:
    """Precision, recall, F1 and support of each label.

    Args:
        report: the evaluation.
        limit: show only so many labels, the lowest F1 first; None shows all in head order.
    """
    scores: list[ClassScore] = list(report.per_class)
    title = "Per class"
    if limit is not None and limit < len(scores):
        # A label without rows has no F1 to be low.
        scores = sorted((s for s in scores if s.support), key=lambda score: score.f1)[:limit]
        title = f"Per class, the {len(scores)} lowest F1 of {len(report.labels)}"
    table = Table(title=title)
    table.add_column("label")
    for name in ("precision", "recall", "F1", "support"):
        table.add_column(name, justify="right")
    for score in scores:
        # Without rows of its own a label has no recall, and a bare 0 would read as a failure.
        shown = (score.precision, score.recall, score.f1) if score.support else ()
        cells = [f"{value:.3f}" for value in shown] or ["-"] * 3
        table.add_row(Text(score.label), *cells, f"{score.support:,}")
    return table


def confusion_table(report: Report) -> Table:
    """The confusion matrix, or the most frequent confusions where there are many labels."""
    if len(report.labels) <= MAX_MATRIX_LABELS:
        return matrix_table(report)
    return top_confusions_table(report)


def matrix_table(report: Report) -> Table:
    """True labels down, predicted labels across, the right ones in bold."""
    table = Table(title="Confusion: true label down, predicted across")
    table.add_column("")
    for label in report.labels:
        table.add_column(Text(label), justify="right", max_width=COLUMN_WIDTH)
    for i, (label, row) in enumerate(zip(report.labels, report.confusion, strict=True)):
        cells = [
            Text(f"{count:,}", style="bold" if i == j else "" if count else "dim")
            for j, count in enumerate(row)
        ]
        table.add_row(Text(label), *cells)
    return table


def top_confusions_table(report: Report, *, limit: int = MAX_CONFUSIONS) -> Table:
    """The pairs of labels that are confused most often, most rows first."""
    pairs = sorted(
        (-count, i, j)
        for i, row in enumerate(report.confusion)
        for j, count in enumerate(row)
        if count and i != j
    )
    table = Table(title=f"Most frequent confusions ({min(limit, len(pairs))} of {len(pairs)})")
    table.add_column("true label")
    table.add_column("predicted as")
    table.add_column("rows", justify="right")
    table.add_column("of support", justify="right")
    for negative, i, j in pairs[:limit]:
        share = -negative / report.per_class[i].support
        labels = Text(report.labels[i]), Text(report.labels[j])
        table.add_row(*labels, f"{-negative:,}", f"{share:.0%}")
    return table
