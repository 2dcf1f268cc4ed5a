"""A data set as bytes, to be kept and read back without its file: gzipped JSON lines."""

import gzip
import json
from collections.abc import Sequence

from capsules.core import Example
from capsules.data.base import Dataset

LEVEL = 6


def pack(dataset: Dataset) -> bytes:
    """The rows of a data set, the same bytes for the same rows.

    Each line is `[label, {field: text, ...}]`; labels without a row and bad rows are not kept.
    """
    lines = (json.dumps([row.label, dict(row.inputs)], ensure_ascii=False) for row in dataset)
    return gzip.compress("\n".join(lines).encode(), LEVEL, mtime=0)


def unpack(data: bytes, *, labels: Sequence[str] | None = None) -> Dataset:
    """The data set that :func:`pack` made the bytes of.

    Args:
        data: the bytes.
        labels: the allowed labels in the order to keep; None takes those found, sorted.

    Raises:
        DataError: a row has a label that is not among `labels`.
    """
    # Not splitlines, which splits at characters that JSON leaves as they are.
    lines = gzip.decompress(data).decode().split("\n")
    rows = (json.loads(line) for line in lines)
    return Dataset.of((Example(inputs, label) for label, inputs in rows), labels=labels)
