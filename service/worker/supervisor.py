"""Keeps a worker running beside a server: starts it, restarts it when it dies, ends it."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue

import structlog

from service.settings import Settings, variable
from service.worker.resources import QUIET_THREADS

COMMAND = (sys.executable, "-P", "-m", "service", "worker", "--supervised")
"""Without the present folder, from which Python would import whatever is there."""

FIRST_DELAY_S = 1.0
LONGEST_DELAY_S = 30.0
SETTLED_S = 60.0
"""Who has lived for so long is restarted as if it had never died."""

GRACE_S = 10.0
"""How long a worker may take to end: it waits for its database, and for nothing else."""

logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)


class Supervisor:
    """One child process, started over and over until it is no longer wanted.

    The child's standard input is a pipe that nothing is written to: it ends with this process,
    however that ends, and the child takes that as a sign to end too.

    Args:
        command: starts the child.
        environment: of the child.
        clock: monotonic seconds.
        grace_s: how long the child may take to end.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        clock: Callable[[], float] = time.monotonic,
        grace_s: float = GRACE_S,
    ) -> None:
        self.command = command
        self.environment = environment
        self.clock = clock
        self.grace_s = grace_s
        self.stopping = False
        self.child: subprocess.Popen[bytes] | None = None
        # Unlike an event's, its `put` may interrupt itself, as it does in a signal handler.
        self.wake: SimpleQueue[None] = SimpleQueue()
        self.thread = threading.Thread(target=self.main, name="supervisor", daemon=True)

    def start(self) -> None:
        """Start the child, in the background; does nothing once it is not wanted."""
        if not self.stopping:
            self.thread.start()

    def ask(self) -> None:
        """Have the child end, without waiting for it; fit for signal handlers, and to be repeated."""
        self.stopping = True
        self.wake.put(None)
        child = self.child
        if child is not None:
            child.terminate()

    def stop(self) -> None:
        """End the child, by force once it has had its time; nothing where it was never started."""
        self.ask()
        if self.thread.ident is None:
            return
        self.thread.join(self.grace_s)
        if self.thread.is_alive() and self.child is not None:
            logger.warning("worker_killed", after_s=self.grace_s)
            self.child.kill()
            self.thread.join()

    def main(self) -> None:
        """Run one child after the other."""
        delay = 0.0
        while True:
            began = self.clock()
            status = self.run()
            if self.stopping:
                return
            lived = self.clock() - began
            delay = next_delay(delay, lived)
            logger.warning(
                "worker_died", status=status, lived_s=round(lived, 1), restart_in_s=delay
            )
            self.rest(delay)

    def run(self) -> int | None:
        """Run a child to its end; gives back its exit status, or None where there was none."""
        try:
            child = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, env=dict(self.environment)
            )
        except OSError as error:
            logger.error("worker_not_started", reason=str(error))
            return None
        with child:
            self.child = child
            # Asked for before there was a child to ask.
            if self.stopping:
                child.terminate()
            # Not `communicate`, which would close the pipe.
            return child.wait()

    def rest(self, seconds: float) -> None:
        """Wait, unless and until the child is no longer wanted."""
        try:
            self.wake.get(timeout=seconds)
        except Empty:
            return


def next_delay(delay: float, lived: float) -> float:
    """Seconds until a child is started again.

    Args:
        delay: what they were before it; 0 for the first.
        lived: seconds that it ran.
    """
    if delay == 0.0 or lived >= SETTLED_S:
        return FIRST_DELAY_S
    return min(2 * delay, LONGEST_DELAY_S)


def supervisor_for(settings: Settings) -> Supervisor:
    """What keeps a worker for a server's jobs."""
    return Supervisor(COMMAND, {**os.environ, **QUIET_THREADS, **as_environment(settings)})


def as_environment(settings: Settings) -> dict[str, str]:
    """Settings as variables from which the same settings are read; an empty one is the default."""
    return {
        variable(name): written(getattr(settings, name)) for name in type(settings).model_fields
    }


def written(value: object) -> str:
    """A setting's value as text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return json.dumps(value)
    # A `ByteSize` would round itself.
    return str(int(value)) if isinstance(value, int) else str(value)
