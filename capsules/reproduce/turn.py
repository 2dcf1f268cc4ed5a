"""One process at a time in a folder of runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from capsules.errors import OptionError
from capsules.reproduce.journal import unwritable

LOCK = ".lock"


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Keep every other process from working in a folder, which is made where it is missing.

    Two would make the same runs, and write over each other's checkpoints.

    Raises:
        OptionError: another one is at work there.
        TrainingError: it cannot be written to.
    """
    lock = FileLock(folder / LOCK)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(blocking=False)
    except Timeout:
        raise OptionError(
            f"{folder} is in use by another process; wait until that has finished, or name another "
            "--output.",
            field="output",
        ) from None
    except OSError as error:
        raise unwritable(folder, error) from error
    try:
        yield
    finally:
        lock.release()
