import io

import pytest
from rich.console import Console, RenderableType

from capsules.evaluation.metrics import Report
from capsules.evaluation.table import (
    confusion_table,
    per_class_table,
    report_tables,
    summary_table,
    top_confusions_table,
)


def rendered(item: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=100, color_system=None)
    with console.capture() as capture:
        console.print(item)
    return capture.get()


def cells(text: str) -> list[list[str]]:
    """The body of a rendered table, as rows of cells."""
    return [
        [cell.strip() for cell in line.strip("│").split("│")]
        for line in text.splitlines()
        if line.startswith("│")
    ]


@pytest.fixture
def small() -> Report:
    truth = ["ham"] * 4 + ["spam"] * 2 + ["[red]eggs"]
    guess = ["ham"] * 3 + ["spam"] + ["spam", "ham"] + ["[red]eggs"]
    return Report.from_labels(truth, guess, labels=["ham", "spam", "[red]eggs", "unused"])


@pytest.fixture
def large() -> Report:
    labels = [f"intent_{i}" for i in range(150)]
    truth = [label for label in labels for _ in range(4)]
    guess = truth.copy()
    guess[40:43] = ["intent_99"] * 3  # intent_10
    guess[80:82] = ["intent_21"] * 2  # intent_20
    guess[596] = "intent_0"  # intent_149
    return Report.from_labels(truth, guess, labels=labels)


def test_summary(small):
    assert cells(rendered(summary_table(small))) == [
        ["accuracy", "0.7143"],
        ["macro F1", "0.7500"],
        ["examples", "7"],
        ["labels", "4"],
    ]


def test_per_class_shows_labels_literally_and_a_dash_without_support(small):
    assert cells(rendered(per_class_table(small))) == [
        ["ham", "0.750", "0.750", "0.750", "4"],
        ["spam", "0.500", "0.500", "0.500", "2"],
        ["[red]eggs", "1.000", "1.000", "1.000", "1"],
        ["unused", "-", "-", "-", "0"],
    ]


def test_per_class_with_a_limit_shows_the_lowest_f1(small, large):
    text = rendered(per_class_table(small, limit=2))
    assert [row[0] for row in cells(text)] == ["spam", "ham"]
    assert "the 2 lowest F1 of 4" in text
    assert [row[0] for row in cells(rendered(per_class_table(large, limit=1)))] == ["intent_10"]
    assert len(cells(rendered(per_class_table(large)))) == 150
    assert len(cells(rendered(per_class_table(small, limit=9)))) == 4


def test_few_labels_show_the_matrix(small):
    assert cells(rendered(confusion_table(small))) == [
        ["ham", "3", "1", "0", "0"],
        ["spam", "1", "1", "0", "0"],
        ["[red]eggs", "0", "0", "1", "0"],
        ["unused", "0", "0", "0", "0"],
    ]


def test_many_labels_show_the_top_confusions(large):
    text = rendered(confusion_table(large))
    assert "Most frequent confusions (3 of 3)" in text
    assert cells(text) == [
        ["intent_10", "intent_99", "3", "75%"],
        ["intent_20", "intent_21", "2", "50%"],
        ["intent_149", "intent_0", "1", "25%"],
    ]


def test_top_confusions_are_cut_and_say_so(large):
    text = rendered(top_confusions_table(large, limit=2))
    assert "(2 of 3)" in text
    assert [row[0] for row in cells(text)] == ["intent_10", "intent_20"]


def test_the_whole_report_fits_a_terminal(small, large):
    for report in (small, large):
        text = rendered(report_tables(report))
        assert text.index("Evaluation") < text.index("Per class") < text.lower().index("confusion")
        assert max(map(len, text.splitlines())) <= 100
