"""Rows from comma- or tab-separated files with a header row and RFC 4180 quoting."""

import csv
from collections.abc import Iterator, Sequence

from capsules.data.base import BLANK, RowProblem
from capsules.data.lines import Lines
from capsules.data.schema import RawRow
from capsules.errors import DataError, DataFault


def read_rows(
    lines: Lines, *, delimiter: str, required: Sequence[str]
) -> Iterator[RawRow | RowProblem]:
    """Parse `lines` under the header of the first one; a quoted cell may hold line ends.

    Raises:
        DataError: the header is unreadable, or lacks or repeats a `required` column.
    """
    # Strict, so that a stray quote is an error and not a guess.
    cells_of = csv.reader(lines, delimiter=delimiter, strict=True)
    header = read_header(cells_of, source=lines.source, required=required)
    while True:
        line = lines.start_row()
        try:
            cells = next(cells_of)
        except StopIteration:
            return
        except csv.Error as error:
            # An unclosed quote swallows the lines after it, which must count as lost too.
            lost = lines.number - line + 1
            span = f" (up to line {lines.number})" if lost > 1 else ""
            yield RowProblem(line, f"malformed CSV: {error}{span}", lines=lost)
            continue
        if not any(cell.strip() for cell in cells):
            yield RowProblem(line, BLANK)
        elif len(cells) != len(header):
            yield RowProblem(line, f"{len(cells)} columns where the header has {len(header)}")
        else:
            yield RawRow(line, dict(zip(header, cells, strict=True)))


def read_header(rows: Iterator[list[str]], *, source: str, required: Sequence[str]) -> list[str]:
    """The column names of the first row.

    Raises:
        DataError: the row is unreadable, or lacks or repeats a `required` column.
    """
    try:
        header = [name.strip() for name in next(rows, [])]
    except csv.Error as error:
        raise DataError(
            f"{source}: the header row is malformed: {error}; save the file as UTF-8 CSV with"
            " a header row and line feeds.",
            code=DataFault.UNREADABLE_FILE,
        ) from error
    if not header:
        raise DataError(
            f"{source} has no header row; the first line must name the columns.",
            code=DataFault.EMPTY_DATASET,
        )
    for name in required:
        if name not in header:
            raise DataError(
                f"{source} has no column {name!r}; its columns are {header}.",
                code=DataFault.MISSING_COLUMN,
                field=name,
            )
        if header.count(name) > 1:
            raise DataError(
                f"{source} has the column {name!r} more than once; rename or remove all but one.",
                code=DataFault.DUPLICATE_COLUMN,
                field=name,
            )
    return header
