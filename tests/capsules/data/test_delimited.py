import io

import pytest

from capsules.data.base import RowProblem
from capsules.data.delimited import read_rows
from capsules.data.lines import MAX_ROW_BYTES, Lines
from capsules.data.schema import RawRow
from capsules.errors import DataError


def rows_of(content: bytes, *, delimiter: str = ",") -> list[RawRow | RowProblem]:
    lines = Lines(io.BytesIO(content), source="rows.csv", max_bytes=2**30)
    return list(read_rows(lines, delimiter=delimiter, required=("text", "label")))


def row(line: int, text: str, label: str) -> RawRow:
    return RawRow(line, {"text": text, "label": label})


def test_quotes_hold_delimiters_quotes_and_line_ends():
    content = b'text,label\r\n"one, ""two""\r\n\r\nthree",x\r\nfour,y\r\n'
    assert rows_of(content) == [row(2, 'one, "two"\r\n\r\nthree', "x"), row(5, "four", "y")]


def test_tabs_as_delimiter():
    assert rows_of(b"text\tlabel\na, b\tx\n", delimiter="\t") == [row(2, "a, b", "x")]


def test_a_byte_order_mark_and_padded_names_do_not_hide_a_column():
    assert rows_of(b"\xef\xbb\xbftext , label\na,x\n") == [row(2, "a", "x")]


def test_other_columns_are_kept_and_may_repeat():
    assert rows_of(b"id,text,label,,\n1,a,x,,\n") == [
        RawRow(2, {"id": "1", "text": "a", "label": "x", "": ""})
    ]


def test_a_row_starts_at_its_first_physical_line():
    content = b'text,label\n"a\nb\nc",x\n\nonly\n"d\ne",y,z\nf,x\n'
    assert rows_of(content) == [
        row(2, "a\nb\nc", "x"),
        RowProblem(5, "blank line"),
        RowProblem(6, "1 columns where the header has 2"),
        RowProblem(7, "3 columns where the header has 2"),
        row(9, "f", "x"),
    ]


def test_empty_cells_only_are_a_blank_row():
    assert rows_of(b"text,label\n, \na,x\n") == [RowProblem(2, "blank line"), row(3, "a", "x")]


def test_text_after_a_closing_quote_is_malformed():
    problem, good = rows_of(b'text,label\n"a"b,x\nc,y\n')
    assert problem == RowProblem(2, "malformed CSV: ',' expected after '\"'")
    assert good == row(3, "c", "y")


def test_an_unclosed_quote_counts_every_line_it_swallows():
    (problem,) = rows_of(b'text,label\n"a,x\nb,y\nc,z\n')
    assert problem == RowProblem(2, "malformed CSV: unexpected end of data (up to line 4)", lines=3)


def test_an_oversized_cell_is_malformed_and_reading_goes_on():
    problem, good = rows_of(b"text,label\n" + b"a" * 131_073 + b",x\nb,y\n")
    assert isinstance(problem, RowProblem)
    assert problem.line == 2
    assert "field larger than field limit" in problem.reason
    assert good == row(3, "b", "y")


def test_a_row_of_endless_lines_is_refused():
    # Each line closes the quote of the line before and opens another, so no cell grows large.
    chained = b"x" * 60_000 + b'","' + b"y" * 60_000 + b"\n"
    content = b'text,label\n"' + chained * (MAX_ROW_BYTES // len(chained) + 2)
    with pytest.raises(DataError, match="missing line end or closing quote") as caught:
        rows_of(content)
    assert caught.value.code == "row_too_large"


@pytest.mark.parametrize(
    ("content", "code", "field", "words"),
    [
        (b"", "empty_dataset", None, "no header row"),
        (b"\n", "empty_dataset", None, "no header row"),
        (b"body,label\na,x\n", "missing_column", "text", "no column 'text'"),
        (b"text;label\na;x\n", "missing_column", "text", "text;label"),
        (b"text,Label\na,x\n", "missing_column", "label", "no column 'label'"),
        (b"text,label,text\na,x,b\n", "duplicate_column", "text", "more than once"),
        (b"text,label\ra,x\rb,y\r", "unreadable_file", None, "line feeds"),
        (b'"text,label\na,x\n', "unreadable_file", None, "header row is malformed"),
    ],
)
def test_an_unusable_header_stops_at_once(content, code, field, words):
    with pytest.raises(DataError, match=words) as caught:
        rows_of(content)
    assert (caught.value.code, caught.value.field) == (code, field)
