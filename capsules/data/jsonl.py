"""Rows from JSON lines: one object a line."""

from collections.abc import Iterator

import orjson

from capsules.data.base import BLANK, RowProblem
from capsules.data.lines import Lines
from capsules.data.schema import RawRow, is_unicode, json_type
from capsules.errors import DataError, DataFault


def read_rows(lines: Lines) -> Iterator[RawRow | RowProblem]:
    """Parse `lines`, one row each.

    Raises:
        DataError: the file is one JSON array instead of lines.
    """
    line = lines.start_row()
    for text in lines:
        if line == 1:
            refuse_array(text, source=lines.source)
        yield parse_line(line, text)
        line = lines.start_row()


def parse_line(line: int, text: str) -> RawRow | RowProblem:
    """Line number `line` as a row, or why it is none."""
    if not text or text.isspace():
        return RowProblem(line, BLANK)
    if not is_unicode(text):
        return RowProblem(line, "invalid UTF-8")
    try:
        values = orjson.loads(text.rstrip("\r\n"))
    except orjson.JSONDecodeError as error:
        return RowProblem(line, f"malformed JSON at column {error.colno}: {error.msg}")
    if not isinstance(values, dict):
        return RowProblem(line, f"the row is {json_type(values)}, not an object")
    return RawRow(line, values)


def refuse_array(first: str, *, source: str) -> None:
    """Tell a JSON array of objects by its first line.

    Raises:
        DataError: it is one.
    """
    if (start := first.strip()) == "[" or start.replace(" ", "").startswith("[{"):
        raise DataError(
            f"{source} is one JSON array; write one object a line instead (jq -c '.[]').",
            code=DataFault.UNSUPPORTED_FORMAT,
        )
