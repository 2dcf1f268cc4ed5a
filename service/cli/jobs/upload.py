"""A file on its way to the server."""

import io
import zlib
from collections.abc import Callable
from pathlib import Path

from capsules.cli.failure import CommandError
from capsules.data.lines import GZIP_MAGIC
from capsules.errors import DataFault

LARGE_BYTES = 1024 * 1024
"""A file from this size on is worth gzipping, and its way worth watching."""

GZIP = zlib.MAX_WBITS | 16
"""Has zlib write the frame of gzip, without a name or a time: the same bytes each time."""

LEVEL = zlib.Z_BEST_SPEED
"""Rows of text shrink to a third even so, faster than most lines carry them."""


class Upload(io.BufferedIOBase):
    """Reads a file to be sent; gzips it on the way if it is large, unless it is gzipped already.

    Going back to the start begins anew, for a request that is repeated.

    Attributes:
        name: for the server, which tells the format by it.
        media_type: of what is read.
        size: of the file, in bytes.
        done: bytes of the file read so far, since the last start.
        advanced: is called whenever that has changed.
    """

    def __init__(self, path: Path) -> None:
        """Open a file.

        Raises:
            CommandError: it cannot be opened.
        """
        try:
            self.file = path.open("rb")
        except OSError as error:
            raise unreadable(path, error) from error
        self.path = path
        self.size = self.file.seek(0, io.SEEK_END)
        self.advanced: Callable[[], None] = lambda: None
        self.seek(0)
        self.gzipped = self.file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
        self.gzips = self.size >= LARGE_BYTES and not self.gzipped
        self.name = f"{path.name}.gz" if self.gzips else path.name
        zipped = self.gzips or self.gzipped
        self.media_type = "application/gzip" if zipped else "application/octet-stream"
        self.seek(0)

    def close(self) -> None:
        """Close the file."""
        self.file.close()
        super().close()

    def fileno(self) -> int:
        """The file's number, from which follows how much there is to send.

        Raises:
            UnsupportedOperation: it is gzipped on the way, and only the end will tell.
        """
        if self.gzips:
            raise io.UnsupportedOperation("the size is not known yet")
        return self.file.fileno()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go back to the start.

        Raises:
            UnsupportedOperation: another place was asked for.
        """
        if (offset, whence) != (0, io.SEEK_SET):
            raise io.UnsupportedOperation("it can only be read from the start")
        self.done = self.file.seek(0)
        self.compressor = zlib.compressobj(LEVEL, zlib.DEFLATED, GZIP)
        self.ended = False
        return 0

    def read(self, size: int | None = -1, /) -> bytes:
        """The next bytes to send, of about `size` bytes of the file; none at the end.

        Raises:
            CommandError: the file cannot be read.
        """
        sent = b""
        while not sent and not self.ended:
            try:
                data = self.file.read(-1 if size is None else size)
            except OSError as error:
                raise unreadable(self.path, error) from error
            self.done += len(data)
            self.ended = not data
            self.advanced()
            sent = self.packed(data) if self.gzips else data
        return sent

    def packed(self, data: bytes) -> bytes:
        """What is to be sent now of a piece of the file; of its end, where there is none."""
        return self.compressor.compress(data) if data else self.compressor.flush()


def unreadable(path: Path, error: OSError) -> CommandError:
    """The failure of a file that cannot be read."""
    return CommandError(f"{path} cannot be read: {error.strerror}.", code=DataFault.UNREADABLE_FILE)
