"""A file of rows while it is received: on disk, without a name, gone once it is closed."""

import errno
import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

import structlog

from capsules.data.reader import DataFormat
from service.errors import PayloadTooLarge, Unavailable
from service.jobs.intake.records import RowFile

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
RETRY_AFTER_S = 60

logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)


def nameless(folder: Path) -> IO[bytes]:
    """A file in a folder that no other process finds, and that does not outlive this one."""
    return tempfile.TemporaryFile(dir=folder, buffering=0)


class Spool:
    """Receives one file; one thread at a time.

    Attributes:
        size: bytes received.
    """

    def __init__(
        self,
        field: str,
        folder: Path,
        limit: int,
        make: Callable[[Path], IO[bytes]] = nameless,
    ) -> None:
        """Begin with an empty file.

        Args:
            field: of the request, for messages.
            folder: on whose disk it is.
            limit: most bytes.
            make: makes the file.

        Raises:
            Unavailable: `disk_full`.
        """
        self.field = field
        self.limit = limit
        self.size = 0
        self.hash = hashlib.sha256()
        try:
            self.file = make(folder)
        except OSError as error:
            raise refused(error, field) from error

    def write(self, data: bytes) -> None:
        """Append bytes.

        Raises:
            PayloadTooLarge: `file_too_large`.
            Unavailable: `disk_full`.
        """
        self.size += len(data)
        if self.size > self.limit:
            raise PayloadTooLarge(
                f"{self.field} is larger than {self.limit:,} bytes, the most that this server "
                "takes (CAPSULE_MAX_DATASET_BYTES); send fewer rows, or have its operator raise "
                "that.",
                code="file_too_large",
                field=self.field,
            )
        self.hash.update(data)
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self.file.write(rest) :]
        except OSError as error:
            raise refused(error, self.field) from error

    def rows(self, name: str, data_format: DataFormat) -> RowFile:
        """What was received, once it is all there.

        Args:
            name: of the file, as it was sent.
            data_format: how its rows are written.
        """
        return RowFile(name, data_format, self.size, self.hash.hexdigest(), self.file.fileno())

    def close(self) -> None:
        """Give the space back."""
        self.file.close()


def refused(error: OSError, field: str) -> Unavailable:
    """The error for a disk that takes no more; what it said goes to the log."""
    logger.error("rows_not_kept", reason=str(error), errno=error.errno)
    full = error.errno in FULL
    return Unavailable(
        f"The server has no room for {field} on its disk; send it again once its operator has "
        "made some."
        if full
        else f"The server cannot keep {field} on its disk; its log tells its operator why.",
        code="disk_full" if full else "disk_failed",
        field=field,
        retry_after=RETRY_AFTER_S,
    )
