"""How a worker process comes to its end."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from threading import Event
from types import FrameType
from typing import NoReturn

import structlog

SUCCESS = 0
FAILURE = 1
ANEW = -1
"""In the place of an exit status: the process is to begin again, with memory that nothing holds."""

STANDARD_INPUT = 0

logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)


class Ending:
    """Asked for by signals and threads, waited for by the main thread.

    Attributes:
        begun: set once it has come.
    """

    def __init__(self) -> None:
        self.begun = Event()
        self.asked: SimpleQueue[int] = SimpleQueue()

    def ask(self, status: int) -> None:
        """Ask for the end; the first to do so decides on the exit status.

        Fit for signal handlers, which an event is not: the thread they interrupt may hold its lock.
        """
        self.asked.put(status)

    def wait(self) -> int:
        """Wait until somebody asks for it; gives back the exit status."""
        status = self.asked.get()
        self.begun.set()
        return status


def end_on_signals(ending: Ending) -> None:
    """Have an interrupt or a request to terminate end the process, which is no failure."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        ending.ask(SUCCESS)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)


def end_with_parent(ending: Ending) -> None:
    """End the process once its standard input does, which the parent holds open while it lives."""

    def main() -> None:
        try:
            while os.read(STANDARD_INPUT, 1):
                continue
        except OSError:
            pass
        ending.ask(SUCCESS)

    threading.Thread(target=main, name="parent", daemon=True).start()


def repeat(name: str, every_s: float, action: Callable[[], None], ending: Ending) -> None:
    """Do something again and again in a thread, until the process ends, or by its failure end it.

    Args:
        name: of the thread.
        every_s: seconds between.
        action: what to do.
        ending: of the process.
    """

    def main() -> None:
        try:
            while not ending.begun.wait(every_s):
                action()
        except Exception:  # without one of its threads a worker would live on and do nothing
            logger.exception("worker_failed", part=name)
            ending.ask(FAILURE)

    threading.Thread(target=main, name=name, daemon=True).start()


def leave(status: int) -> NoReturn:
    """End the process now; its threads may be in the midst of an epoch, which is done again.

    Args:
        status: of its exit; or `ANEW`, to run its command once more in its place.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if status == ANEW:
        # Its niceness stays with the process.
        os.execv(sys.executable, [*sys.orig_argv, "--train-nice", "0"])
    os._exit(status)
