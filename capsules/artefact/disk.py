"""Capsule files on disk, of which no more is read than one can have."""

import os
import stat
from pathlib import Path

from capsules.errors import ArtefactError, FileFault

MAX_FILE_BYTES = 512 * 1024 * 1024
"""The largest capsule file: the most labels there may be, on a backbone 8,192 wide, and more."""


def read_bytes(path: Path) -> bytes:
    """The content of a capsule file.

    Raises:
        ArtefactError: `unreadable_file`, where it is no file but a device, a pipe or a folder, or
            cannot be read; `file_too_large`, where it is larger than any capsule.
    """
    try:
        with open(path, "rb", opener=opened) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ArtefactError(
                    f"{path} is a device or a pipe; name a capsule file.",
                    code=FileFault.UNREADABLE,
                )
            if status.st_size > MAX_FILE_BYTES:
                raise ArtefactError(
                    f"{path} has {status.st_size:,} bytes, and a capsule file has at most "
                    f"{MAX_FILE_BYTES:,}; name a capsule file.",
                    code=FileFault.TOO_LARGE,
                )
            return file.read(status.st_size)
    except OSError as error:
        raise ArtefactError(
            f"{path} cannot be read ({error.strerror}); check the path and its permissions.",
            code=FileFault.UNREADABLE,
        ) from error


def opened(path: str, flags: int) -> int:
    """Open a file; a pipe that nobody writes to is not waited for."""
    return os.open(path, flags | os.O_NONBLOCK)
