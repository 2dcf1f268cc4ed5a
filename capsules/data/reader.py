"""Data sets from files: JSON lines, CSV and TSV, each plain or gzipped."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import IO

from capsules.data import delimited, jsonl
from capsules.data.base import Dataset, RowProblem
from capsules.data.collector import Collector
from capsules.data.limits import DEFAULT_LIMITS, Limits
from capsules.data.lines import Lines
from capsules.data.schema import RawRow, RowSchema
from capsules.errors import DataError, DataFault


class DataFormat(StrEnum):
    """How rows are written in a file."""

    JSONL = "jsonl"
    CSV = "csv"
    TSV = "tsv"


SUFFIXES = {
    ".jsonl": DataFormat.JSONL,
    ".ndjson": DataFormat.JSONL,
    ".json": DataFormat.JSONL,
    ".csv": DataFormat.CSV,
    ".tsv": DataFormat.TSV,
}


def load(
    path: str | Path,
    *,
    fields: Sequence[str],
    label_field: str = "label",
    labels: Sequence[str] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Dataset:
    """Read the labelled rows of a file.

    Args:
        path: a `.jsonl`, `.ndjson`, `.json` (one object a line), `.csv` or `.tsv` file, with or
            without `.gz`; whether it is gzipped is told by its content.
        fields: names of the inputs every row must have.
        label_field: name of the label.
        labels: the allowed labels in the order to keep; None takes those found, sorted.
        limits: bounds on size and on unusable rows.

    Raises:
        DataError: the file cannot be read, is too large, has no usable row or too many bad ones.
        OptionError: an argument has a value that cannot be used.
    """
    file = Path(path)
    data_format = format_of(file.name)
    try:
        stream = file.open("rb")
    except OSError as error:
        raise DataError(
            f"{file} cannot be opened: {error.strerror}.", code=DataFault.UNREADABLE_FILE
        ) from error
    with stream:
        return read(
            stream,
            data_format=data_format,
            source=str(file),
            fields=fields,
            label_field=label_field,
            labels=labels,
            limits=limits,
        )


def read(
    stream: IO[bytes],
    *,
    data_format: DataFormat,
    source: str,
    fields: Sequence[str],
    label_field: str = "label",
    labels: Sequence[str] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Dataset:
    """Read labelled rows from a seekable binary stream, one row at a time.

    Args:
        stream: the file's bytes, plain or gzipped; left open.
        data_format: how the rows are written.
        source: name of the stream, for messages.
        fields: names of the inputs every row must have.
        label_field: name of the label.
        labels: the allowed labels in the order to keep; None takes those found, sorted.
        limits: bounds on size and on unusable rows.

    Raises:
        DataError: the stream cannot be read, is too large, has no usable row or too many bad ones.
        OptionError: an argument has a value that cannot be used.
    """
    schema = RowSchema(tuple(fields), label_field, None if labels is None else tuple(labels))
    lines = Lines(stream, source=source, max_bytes=limits.max_bytes)
    collector = Collector(source, limits)
    for row in raw_rows(lines, data_format, required=(*schema.fields, label_field)):
        collector.add(schema.parse(row) if isinstance(row, RawRow) else row)
    return collector.finish(labels)


def format_of(name: str) -> DataFormat:
    """The format that a file name's suffix tells.

    Raises:
        DataError: the suffix is none of the known ones.
    """
    suffix = Path(name.lower().removesuffix(".gz")).suffix
    if suffix not in SUFFIXES:
        raise DataError(
            f"The format of {name!r} is not known by its suffix; rename it to end in one of"
            f" {', '.join(SUFFIXES)}, with or without .gz.",
            code=DataFault.UNSUPPORTED_FORMAT,
        )
    return SUFFIXES[suffix]


def raw_rows(
    lines: Lines, data_format: DataFormat, *, required: Sequence[str]
) -> Iterator[RawRow | RowProblem]:
    """The unchecked rows of `lines`."""
    if data_format is DataFormat.JSONL:
        return jsonl.read_rows(lines)
    delimiter = "\t" if data_format is DataFormat.TSV else ","
    return delimited.read_rows(lines, delimiter=delimiter, required=required)
