"""Rows as the bytes of a data file."""

import csv
import io
import json
from collections.abc import Mapping, Sequence


def as_jsonl(rows: Sequence[Mapping[str, object]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def as_csv(rows: Sequence[Mapping[str, object]], *, delimiter: str = ",") -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()
