"""The physical lines of a file: gunzipped, decoded, counted and bounded."""

import codecs
import gzip
import zlib
from typing import IO

from capsules.errors import DataError, DataFault

GZIP_MAGIC = b"\x1f\x8b"
UTF8_BOM = b"\xef\xbb\xbf"
UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")
PEEKED_BYTES = 1024
MAX_ROW_BYTES = 16 * 1024 * 1024


class Lines:
    r"""Iterator over the lines of a binary stream, each with its line end.

    Lines end at `\n`. Bytes that are not UTF-8 arrive as lone surrogates, so that one bad row does
    not cost the rest of the file. Holds one line at a time.

    Attributes:
        source: name of the file, for messages.
        number: number of the line read last, from 1; 0 before the first.
    """

    def __init__(self, stream: IO[bytes], *, source: str, max_bytes: int) -> None:
        """Read from `stream`, which must be seekable; gzip is told by its first bytes.

        Raises:
            DataError: the stream cannot be read.
        """
        self.source = source
        self.number = 0
        self._max_bytes = max_bytes
        self._bytes = 0
        self._row_bytes = 0
        self._stream = self._unpacked(stream)

    def start_row(self) -> int:
        """Begin a new row at the next line, and return that line's number."""
        self._row_bytes = 0
        return self.number + 1

    def __iter__(self) -> "Lines":
        return self

    def __next__(self) -> str:
        """The next line.

        Raises:
            DataError: the stream is broken, is not UTF-8 at all, or is beyond a limit.
        """
        raw = self._read_line()
        if not raw:
            raise StopIteration
        self.number += 1
        if self.number == 1:
            if raw.startswith(UTF16_BOMS):
                raise self.unreadable("is UTF-16; save it as UTF-8")
            raw = raw.removeprefix(UTF8_BOM)
        return raw.decode("utf-8", errors="surrogateescape")

    def unreadable(self, what: str) -> DataError:
        """The error for a file that `what` makes unusable as a whole."""
        return DataError(f"{self.source} {what}.", code=DataFault.UNREADABLE_FILE)

    def _unpacked(self, stream: IO[bytes]) -> IO[bytes] | gzip.GzipFile:
        try:
            start = stream.tell()
            head = stream.read(PEEKED_BYTES)
            stream.seek(start)
        except OSError as error:
            raise self.unreadable(f"cannot be read: {error}") from error
        if head.startswith(GZIP_MAGIC):
            return gzip.GzipFile(fileobj=stream, mode="rb")
        if self.source.lower().endswith(".gz") and not may_be_text(head):
            raise self.unreadable(
                "is not gzipped, whatever its name says, and no text either; pack it with gzip, or "
                "send the text as it is"
            )
        return stream

    def _read_line(self) -> bytes:
        # One byte more than is allowed tells "full" from "too much" without expanding a gzip bomb.
        left = self._max_bytes - self._bytes
        row_left = MAX_ROW_BYTES - self._row_bytes
        try:
            raw = self._stream.readline(min(left, row_left) + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise self.unreadable(f"is broken after line {self.number}: {error}") from error
        if len(raw) > left:
            raise DataError(
                f"{self.source} holds more than {self._max_bytes:,} bytes once unpacked;"
                " split the file or raise max_bytes.",
                code=DataFault.FILE_TOO_LARGE,
                field="max_bytes",
            )
        if len(raw) > row_left:
            raise DataError(
                f"{self.source}: the row at line {self.number + 1} is longer than"
                f" {MAX_ROW_BYTES:,} bytes; look for a missing line end or closing quote.",
                code=DataFault.ROW_TOO_LARGE,
            )
        self._bytes += len(raw)
        self._row_bytes += len(raw)
        return raw


def may_be_text(head: bytes) -> bool:
    """Whether a file that begins so can be UTF-8, or UTF-16, which is refused elsewhere."""
    if head.startswith(UTF16_BOMS):
        return True
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return b"\0" not in head
