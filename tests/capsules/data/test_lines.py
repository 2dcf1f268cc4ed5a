import gzip
import io

import pytest

from capsules.data.lines import MAX_ROW_BYTES, Lines
from capsules.errors import DataError


def lines_of(content: bytes, *, max_bytes: int = 2**30) -> Lines:
    return Lines(io.BytesIO(content), source="rows.jsonl", max_bytes=max_bytes)


def test_line_ends_are_kept_and_lines_counted():
    lines = lines_of(b"a\r\nb\n\nc")
    assert lines.number == 0
    assert list(lines) == ["a\r\n", "b\n", "\n", "c"]
    assert lines.number == 4


def test_only_a_leading_byte_order_mark_is_dropped():
    mark = b"\xef\xbb\xbf"
    assert list(lines_of(mark + b"a\n" + mark + b"b\n")) == ["a\n", "\ufeffb\n"]


def test_bytes_that_are_not_utf8_spoil_only_their_line():
    assert list(lines_of("é\n".encode() + b"\xe9\n" + b"ok\n")) == ["é\n", "\udce9\n", "ok\n"]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_is_refused_with_the_remedy(encoding):
    with pytest.raises(DataError, match="save it as UTF-8") as caught:
        next(lines_of("\ufefftext,label\n".encode(encoding)))
    assert caught.value.code == "unreadable_file"


def test_gzip_is_told_by_content_also_in_several_members():
    content = gzip.compress(b"a\nb") + gzip.compress(b"c\nd\n")
    assert list(lines_of(content)) == ["a\n", "bc\n", "d\n"]


def test_reading_starts_where_the_stream_stands():
    stream = io.BytesIO(b"skip\na\n")
    stream.readline()
    assert list(Lines(stream, source="rows", max_bytes=100)) == ["a\n"]


@pytest.mark.parametrize(
    "broken",
    [
        gzip.compress(b"row one\nrow two\n" * 50)[:-12],
        gzip.compress(b"row one\n")[:-8] + b"\0" * 8,
        b"\x1f\x8b\x08\x00" + b"\xff" * 30,
    ],
    ids=["truncated", "wrong checksum", "no deflate stream"],
)
def test_broken_gzip_is_refused(broken):
    with pytest.raises(DataError, match=r"rows\.jsonl is broken after line") as caught:
        list(lines_of(broken))
    assert caught.value.code == "unreadable_file"


def test_a_stream_that_cannot_seek_is_refused():
    class Pipe(io.BytesIO):
        def tell(self) -> int:
            raise io.UnsupportedOperation("underlying stream is not seekable")

    with pytest.raises(DataError, match="not seekable") as caught:
        Lines(Pipe(b"a\n"), source="rows", max_bytes=10)
    assert caught.value.code == "unreadable_file"


def test_the_size_limit_is_exact_and_holds_across_lines():
    assert len(list(lines_of(b"abc\n" * 5, max_bytes=20))) == 5
    with pytest.raises(DataError, match="more than 19 bytes") as caught:
        list(lines_of(b"abc\n" * 5, max_bytes=19))
    assert (caught.value.code, caught.value.field) == ("file_too_large", "max_bytes")


def test_a_gzip_bomb_stops_at_the_limit_without_being_expanded():
    class Counting(io.BytesIO):
        taken = 0

        def read(self, size: int | None = -1) -> bytes:
            data = super().read(size)
            self.taken += len(data)
            return data

    # 64 MiB of lines in about 64 KiB.
    bomb = Counting(gzip.compress(b"x" * 1023 + b"\n", 9) + gzip.compress(b"\0" * 2**26, 9))
    with pytest.raises(DataError, match="more than 100,000 bytes once unpacked") as caught:
        list(Lines(bomb, source="bomb.jsonl.gz", max_bytes=100_000))
    assert caught.value.code == "file_too_large"
    assert bomb.taken < len(bomb.getvalue())


def test_an_endless_row_is_refused_whether_one_line_or_many():
    with pytest.raises(DataError, match="row at line 2 is longer than") as caught:
        list(lines_of(b"short\n" + b"x" * (MAX_ROW_BYTES + 1)))
    assert caught.value.code == "row_too_large"

    half = b"x" * (MAX_ROW_BYTES // 2) + b"\n"
    assert len(list(lines_of(half))) == 1
    with pytest.raises(DataError, match="longer than"):
        list(lines_of(half * 2))

    lines = lines_of(half * 2)
    for expected in (1, 2):
        assert lines.start_row() == expected
        next(lines)


@pytest.mark.parametrize("content", [b"PK\x03\x04\x14\0rows", b"BZh91AY&SY\xe9\xff\xfe", b"a\0b\n"])
def test_what_is_called_gzip_and_is_not_even_text_is_refused(content: bytes) -> None:
    with pytest.raises(DataError, match=r"rows\.jsonl\.gz is not gzipped, .*; pack it") as caught:
        Lines(io.BytesIO(content), source="rows.jsonl.gz", max_bytes=100)
    assert caught.value.code == "unreadable_file"
    # Under another name, its lines are told one by one.
    Lines(io.BytesIO(content), source="rows.jsonl", max_bytes=100)


@pytest.mark.parametrize("content", [b"", "é\n".encode() * 400, b"a" + "é\n".encode() * 400])
def test_text_that_is_called_gzip_is_read(content: bytes) -> None:
    """Clients and proxies unpack what they name by its packed name; the peek may cut a letter."""
    lines = Lines(io.BytesIO(content), source="rows.jsonl.gz", max_bytes=10_000)
    assert "".join(lines).encode() == content
