"""Files of rows as the server receives them."""

import gzip
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from capsules.data.reader import DataFormat
from service.jobs.intake.records import Demands, RowFile
from service.jobs.intake.spool import Spool
from service.jobs.records import Split
from tests.support.rows import as_jsonl

LIMIT = 64 * 1024 * 1024


@contextmanager
def row_files(
    folder: Path, contents: Mapping[Split, bytes], data_format: DataFormat = DataFormat.JSONL
) -> Iterator[dict[Split, RowFile]]:
    """Files of these contents, for as long as the context is."""
    with ExitStack() as opened:
        files: dict[Split, RowFile] = {}
        for split, content in contents.items():
            spool = Spool(split, folder, LIMIT)
            opened.callback(spool.close)
            spool.write(content)
            files[split] = spool.rows(f"{split}.{data_format}", data_format)
        yield files


def demands(**changes: Any) -> Demands:
    """What rows of one text have to be like."""
    values: dict[str, Any] = {
        "fields": ("text",),
        "label_field": "label",
        "labels": None,
        "max_bad_rows": None,
        "max_bytes": LIMIT,
        "max_rows": 1_000_000,
        "max_labels": 10_000,
    }
    return Demands(**{**values, **changes})


def labelled(*rows: tuple[str, str]) -> bytes:
    """JSON lines of texts and labels."""
    return as_jsonl([{"text": text, "label": label} for text, label in rows])


def four() -> bytes:
    """The fewest rows that can be split."""
    return labelled(("a", "no"), ("b", "no"), ("c", "yes"), ("d", "yes"))


def bomb(size: int) -> bytes:
    """A small file of one row that is large once it is unpacked, the same bytes at any time."""
    return gzip.compress(b'{"text": "' + b"a" * size + b'", "label": "no"}\n', mtime=0)


def sha256(content: bytes) -> str:
    """The digest of a content, in hex."""
    return hashlib.sha256(content).hexdigest()
