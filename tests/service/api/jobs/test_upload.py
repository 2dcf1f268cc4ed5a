import os
from pathlib import Path

import pytest

from service.api.jobs.sinks import FLUSH_BYTES, plain_name
from service.api.jobs.upload import FRAMING_BYTES, body_limit, write_rows
from service.jobs.intake.spool import Spool
from tests.support.edge import settings_for
from tests.support.rows import as_jsonl


def test_many_rows_are_written_piece_by_piece(tmp_path: Path) -> None:
    rows = [{"text": "a" * 1000, "label": str(number)} for number in range(3000)]
    pieces: list[int] = []

    class Watched(Spool):
        def write(self, data: bytes) -> None:
            pieces.append(len(data))
            super().write(data)

    spool = Watched("train", tmp_path, 10**8)
    write_rows(spool, rows)
    assert os.pread(spool.file.fileno(), 10**8, 0) == as_jsonl(rows)
    assert len(pieces) > 2
    assert max(pieces) < FLUSH_BYTES + 2000
    spool.close()


@pytest.mark.parametrize(
    ("content_type", "limit"),
    [
        ("multipart/form-data; boundary=x", 3 * 7000 + 100 + FRAMING_BYTES),
        ("Multipart/Form-Data", 3 * 7000 + 100 + FRAMING_BYTES),
        ("application/json", 100),
        ("text/plain", 100),
        (None, 100),
    ],
)
def test_a_form_may_be_as_large_as_its_files(
    tmp_path: Path, content_type: str | None, limit: int
) -> None:
    settings = settings_for(tmp_path, max_dataset_bytes=7000, max_body_bytes=100)
    headers = [] if content_type is None else [(b"content-type", content_type.encode())]
    assert body_limit(settings, {"headers": headers}) == limit


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("rows.csv", "rows.csv"),
        ("../../etc/rows.csv", "rows.csv"),
        ("C:\\data\\rows.csv", "rows.csv"),
        ("x" * 300, "x" * 255),
        ("/", ""),
    ],
)
def test_a_name_has_no_folders(name: str, plain: str) -> None:
    assert plain_name(name) == plain
