import errno
import io
import os
from pathlib import Path
from typing import IO

import pytest
from structlog.testing import capture_logs

from capsules.data.reader import DataFormat
from service.errors import PayloadTooLarge, Unavailable
from service.jobs.intake.spool import Spool, nameless
from tests.support.row_files import sha256


class Disk(io.RawIOBase):
    """A disk of a few bytes; `full` says what is wrong then."""

    def __init__(self, size: int, full: int = errno.ENOSPC) -> None:
        self.size = size
        self.full = full

    def write(self, data) -> int:
        if not self.size:
            raise OSError(self.full, os.strerror(self.full))
        taken = min(self.size, len(data), 3)
        self.size -= taken
        return taken


def disk(size: int, full: int = errno.ENOSPC) -> IO[bytes]:
    return Disk(size, full)  # type: ignore[return-value]


def test_what_is_written_is_there_with_its_digest(tmp_path: Path) -> None:
    spool = Spool("train", tmp_path, 10)
    for data in (b"one", b"", b"two", b"four"):
        spool.write(data)
    file = spool.rows("a.csv", DataFormat.CSV)
    assert (file.name, file.format, file.size) == ("a.csv", DataFormat.CSV, 10)
    assert file.digest == sha256(b"onetwofour")
    assert os.pread(file.descriptor, 100, 0) == b"onetwofour"
    assert list(tmp_path.iterdir()) == []
    spool.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file.descriptor)


def test_a_file_may_be_as_large_as_it_may_be(tmp_path: Path) -> None:
    spool = Spool("test", tmp_path, 4)
    spool.write(b"1234")
    with pytest.raises(PayloadTooLarge, match="CAPSULE_MAX_DATASET_BYTES") as caught:
        spool.write(b"5")
    assert (caught.value.code, caught.value.field) == ("file_too_large", "test")
    spool.close()


def test_what_a_disk_takes_in_pieces_is_written_whole(tmp_path: Path) -> None:
    taken: list[bytes] = []

    class Slow(io.RawIOBase):
        def write(self, data) -> int:
            taken.append(bytes(data[:2]))
            return min(2, len(data))

    spool = Spool("train", tmp_path, 100, lambda folder: Slow())  # type: ignore[arg-type,return-value]
    spool.write(b"12345")
    assert b"".join(taken) == b"12345"


@pytest.mark.parametrize(
    ("number", "code"),
    [(errno.ENOSPC, "disk_full"), (errno.EDQUOT, "disk_full"), (errno.EIO, "disk_failed")],
)
def test_a_disk_that_takes_no_more(tmp_path: Path, number: int, code: str) -> None:
    spool = Spool("train", tmp_path, 100, lambda folder: disk(4, number))
    with capture_logs() as logs, pytest.raises(Unavailable, match="train") as caught:
        spool.write(b"12345")
    assert (caught.value.code, caught.value.field, caught.value.retry_after) == (code, "train", 60)
    assert logs[0]["errno"] == number
    assert os.strerror(number) not in caught.value.detail


def test_a_disk_on_which_nothing_can_be_begun(tmp_path: Path) -> None:
    def make(folder: Path) -> IO[bytes]:
        return nameless(folder / "nowhere")

    with capture_logs(), pytest.raises(Unavailable) as caught:
        Spool("train", tmp_path, 100, make)
    assert caught.value.code == "disk_failed"
