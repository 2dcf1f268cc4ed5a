"""Runs the examination of rows where it holds nobody up.

A file of any size is a few hundred bytes of objects a row, and the collections of a garbage
collector that meets a million of them stop every thread for most of a second. So rows are examined
in a process of their own, which takes its memory with it and leaves the processor to the server,
unless they are few.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from threading import Lock

import structlog

from capsules.data.lines import GZIP_MAGIC
from service.errors import DeadlineExceeded, InternalError
from service.jobs.intake.examine import examine
from service.jobs.intake.records import Demands, Findings, Refused, RowFile
from service.jobs.records import Split

FEW_BYTES = 1024 * 1024
"""Of all files together: what is examined in a tenth of a second."""

PACKED = 1000
"""How much larger a gzipped file may be than it looks."""

EXCERPT = 2000
"""Characters of what a process said before it died that go to the log."""

logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)


class Examination:
    """One examination, to be run in a thread and stopped from any other.

    Args:
        files: the files of each split; left open.
        demands: what their rows have to be like.
        limit_s: how long a process may take.
    """

    def __init__(self, files: Mapping[Split, RowFile], demands: Demands, limit_s: float) -> None:
        self.files = files
        self.demands = demands
        self.limit_s = limit_s
        self.lock = Lock()
        self.stopped = False
        self.process: subprocess.Popen[bytes] | None = None

    def run(self) -> Findings | Refused | None:
        """Examine the rows, here or in another process; None where it was stopped.

        Raises:
            DeadlineExceeded: they are too many to be examined in time.
            InternalError: the process died.
        """
        if sum(map(weight, self.files.values())) <= FEW_BYTES:
            return examine(self.files, self.demands)
        return self.apart()

    def stop(self) -> None:
        """Give up; a process ends at once, and what runs here ends soon by itself."""
        with self.lock:
            self.stopped = True
            if self.process is not None:
                self.process.kill()

    def apart(self) -> Findings | Refused | None:
        """Examine the rows in another process; see :meth:`run`."""
        process = self.begin([file.descriptor for file in self.files.values()])
        if process is None:
            return None
        with process:
            try:
                output, errors = process.communicate(
                    pickle.dumps((self.files, self.demands)), timeout=self.limit_s
                )
            except subprocess.TimeoutExpired:
                process.kill()
                raise DeadlineExceeded(
                    f"The rows were not checked within {self.limit_s:g} s; send fewer of them.",
                    code="deadline_exceeded",
                    field="train",
                ) from None
        if self.stopped:
            return None
        if process.returncode != 0:
            raise died(process.returncode, errors)
        found: Findings | Refused = pickle.loads(output)  # from our own process
        return found

    def begin(self, descriptors: Sequence[int]) -> subprocess.Popen[bytes] | None:
        """Start the process, unless it is not wanted any more."""
        with self.lock:
            if self.stopped:
                return None
            self.process = subprocess.Popen(
                # Without the present folder, from which Python would import whatever is there.
                [sys.executable, "-P", "-m", "service.jobs.intake"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=descriptors,
                # An interrupt from the terminal is the server's affair.
                start_new_session=True,
            )
            return self.process


def weight(file: RowFile) -> int:
    """About the most bytes that a file may be once it is unpacked."""
    packed = os.pread(file.descriptor, len(GZIP_MAGIC), 0) == GZIP_MAGIC
    return file.size * PACKED if packed else file.size


def died(status: int, errors: bytes) -> InternalError:
    """The error for a process that ended without an answer; what it said goes to the log."""
    logger.error("examination_died", status=status, said=errors.decode(errors="replace")[-EXCERPT:])
    return InternalError(
        "The process that checked the rows died, most likely for want of memory; send fewer rows, "
        "or have the server's operator look into its log.",
        code="examination_died",
        field="train",
    )
