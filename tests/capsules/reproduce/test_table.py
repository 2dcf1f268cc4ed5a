from io import StringIO

from rich.console import Console

from capsules.reproduce.record import Skip
from capsules.reproduce.summary import cells, paired
from capsules.reproduce.table import (
    details,
    differences,
    markdown,
    notes,
    scores,
    shown,
    signed,
    skipped,
)

SKIP = Skip(task="multirc", method=None, seed=None, reason="not | here")


def rows_of(make_row):
    return [
        make_row("cb", "capsule", 0, 0.7),
        make_row("cb", "capsule", 1, 0.8),
        make_row("cb", "task-only", 0, 0.75),
        make_row("trec", "capsule", 0, 0.9, note="64 of the 100 published training rows"),
    ]


def test_scores_have_a_mean_where_a_method_has_every_set(make_row):
    assert markdown(scores(cells(rows_of(make_row)))).splitlines() == [
        "| method | cb | trec | mean |",
        "| --- | --- | --- | --- |",
        "| capsule | 0.750 ± 0.071 | 0.900 | 0.825 |",
        "| task-only | 0.750 | - | - |",
    ]


def test_one_set_needs_no_mean(make_row):
    head, _ = scores(cells([make_row()]))
    assert head == ["method", "cb"]


def test_details_tell_what_it_cost(make_row):
    (cell,) = cells([make_row(rates=(0.02, 0.05))])
    _, [row] = details([cell])
    assert row == [
        "cb", "capsule", "1", "0.750", "0.750", "3,000", "0.3 %", "0.02", "3.0", "6.0 of 12.0",
        "800 MiB",
    ]  # fmt: skip


def test_differences_say_what_they_rest_on(make_row):
    rows = rows_of(make_row)
    _, [row] = differences(paired(rows, "capsule", "task-only"))
    assert row == ["cb", "-0.050", "-0.050", "-", "0.020", "one seed"]
    rows.append(make_row("cb", "task-only", 1, 0.75))
    _, [row] = differences(paired(rows, "capsule", "task-only"))
    assert row[1:4] == ["-0.050, +0.050", "+0.000", "-0.635 to +0.635"]


def test_cells_cannot_break_a_table():
    assert markdown(skipped([SKIP])).splitlines()[-1] == "| multirc | - | - | not / here |"


def test_notes_name_the_metric_and_what_is_not_comparable(make_row):
    cb, trec = notes(cells(rows_of(make_row)))
    assert cb == "- cb: mean of accuracy and macro-F1, 50 test rows."
    assert "64 of the 100 published training rows, so not comparable" in trec


def test_terminal_shows_what_there_is(make_row):
    console = Console(width=200, record=True, file=StringIO())
    console.print(shown(cells(rows_of(make_row)), [SKIP]))
    text = console.export_text()
    assert "0.750 ± 0.071" in text
    assert "not | here" in text
    console.print(shown([], [SKIP]))
    assert "Test scores" not in console.export_text()


def test_nothing_has_no_negative_sign():
    assert [signed(value) for value in (-0.0001, 0.0, -0.001, 0.25)] == [
        "+0.000",
        "+0.000",
        "-0.001",
        "+0.250",
    ]
