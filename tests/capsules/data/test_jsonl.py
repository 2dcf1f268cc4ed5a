import io

import pytest

from capsules.data.base import RowProblem
from capsules.data.jsonl import read_rows
from capsules.data.lines import Lines
from capsules.data.schema import RawRow
from capsules.errors import DataError


def rows_of(content: bytes) -> list[RawRow | RowProblem]:
    return list(read_rows(Lines(io.BytesIO(content), source="rows.jsonl", max_bytes=2**20)))


def test_objects_keep_their_values_and_line_numbers():
    assert rows_of(b'{"text": "a", "label": 1}\r\n\n{"text": "\\ud83d\\ude00"}') == [
        RawRow(1, {"text": "a", "label": 1}),
        RowProblem(2, "blank line"),
        RawRow(3, {"text": "😀"}),
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"text": "a"', "malformed JSON at column 13: unexpected end of data"),
        (b'{"text": "a"} {}', "malformed JSON at column 15: unexpected content after document"),
        (b'{"text": NaN}', "malformed JSON at column 10: unexpected character"),
        (b'{"text": "\\ud83d"}', "malformed JSON at column 11: no low surrogate in string"),
        (b'{"text": "caf\xe9"}', "invalid UTF-8"),
        (b'{"text": "\xed\xa0\xbd"}', "invalid UTF-8"),
        (b"[1]", "the row is an array, not an object"),
        (b'"text"', "the row is a string, not an object"),
        (b"3", "the row is a number, not an object"),
        (b"null", "the row is null, not an object"),
        (b"true", "the row is a boolean, not an object"),
        (b" \t ", "blank line"),
    ],
)
def test_each_bad_line_has_its_reason_and_spoils_no_other(line, reason):
    before, problem, after = rows_of(b'{"a": 1}\n' + line + b'\n{"b": 2}\n')
    assert (before, after) == (RawRow(1, {"a": 1}), RawRow(3, {"b": 2}))
    assert isinstance(problem, RowProblem)
    assert problem.line == 2
    assert problem.reason.startswith(reason)


def test_deep_nesting_is_malformed_not_a_crash():
    (problem,) = rows_of(b'{"a": ' + b"[" * 100_000)
    assert isinstance(problem, RowProblem)
    assert "depth" in problem.reason


@pytest.mark.parametrize("content", [b'[\n  {"text": "a"}\n]', b' [ {"text": "a"}, {}]'])
def test_a_json_array_is_named_as_such(content):
    with pytest.raises(DataError, match="one JSON array; write one object a line") as caught:
        rows_of(content)
    assert caught.value.code == "unsupported_format"
