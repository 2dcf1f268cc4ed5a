import gzip
import io
import random

import pytest

from capsules.cli.failure import CommandError
from service.cli.jobs.upload import LARGE_BYTES, Upload

NOISE = random.Random(0).randbytes(LARGE_BYTES + 10)


def drained(upload: Upload) -> bytes:
    """All that is sent, in pieces as the client asks for them."""
    return b"".join(iter(lambda: upload.read(64 * 1024), b""))


@pytest.fixture
def upload(tmp_path):
    """Makes an upload of a file that holds some bytes."""
    made = []

    def of(data: bytes, name: str = "rows.jsonl") -> Upload:
        (tmp_path / name).write_bytes(data)
        made.append(Upload(tmp_path / name))
        return made[-1]

    yield of
    for one in made:
        one.close()


@pytest.mark.parametrize("data", [b"", b"x", b"row\n" * 1000])
def test_a_small_file_is_sent_as_it_is(upload, data):
    sent = upload(data)
    assert (sent.name, sent.media_type) == ("rows.jsonl", "application/octet-stream")
    assert drained(sent) == data
    assert sent.fileno()


@pytest.mark.parametrize("data", [b"row number one\n" * LARGE_BYTES, NOISE])
def test_a_large_file_is_gzipped_on_the_way(upload, data):
    sent = upload(data, "rows.csv")
    assert (sent.name, sent.media_type) == ("rows.csv.gz", "application/gzip")
    assert gzip.decompress(drained(sent)) == data
    with pytest.raises(io.UnsupportedOperation):
        sent.fileno()


def test_a_gzipped_file_is_sent_as_it_is(upload):
    data = gzip.compress(NOISE)
    assert len(data) > LARGE_BYTES
    sent = upload(data, "rows.jsonl.gz")
    assert (sent.name, sent.media_type) == ("rows.jsonl.gz", "application/gzip")
    assert drained(sent) == data


def test_the_same_is_sent_again_from_the_start(upload):
    sent = upload(NOISE)
    whole = drained(sent)
    sent.seek(0)
    part = sent.read(1000)
    sent.seek(0)
    assert whole.startswith(part)
    assert drained(sent) == whole


def test_how_far_it_is_counts_the_bytes_of_the_file(upload):
    seen: list[int] = []
    sent: Upload = upload(NOISE)
    sent.advanced = lambda: seen.append(sent.done)
    drained(sent)
    assert (sent.size, seen[-1]) == (len(NOISE), len(NOISE))
    assert seen == sorted(seen)
    assert len(set(seen)) > 10
    sent.seek(0)
    assert sent.done == 0


@pytest.mark.parametrize("place", [(1,), (0, io.SEEK_CUR), (0, io.SEEK_END)])
def test_there_is_no_going_elsewhere(upload, place):
    with pytest.raises(io.UnsupportedOperation):
        upload(b"rows").seek(*place)


def test_a_file_that_cannot_be_opened_is_named(tmp_path):
    with pytest.raises(CommandError, match=r"rows\.jsonl cannot be read") as caught:
        Upload(tmp_path / "rows.jsonl")
    assert caught.value.code == "unreadable_file"


def test_a_file_that_breaks_is_named(upload):
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise OSError(5, "Input/output error")

    sent = upload(b"rows")
    sent.file.close()
    sent.file = Broken()
    with pytest.raises(CommandError, match=r"rows\.jsonl cannot be read: Input/output error"):
        sent.read(10)
