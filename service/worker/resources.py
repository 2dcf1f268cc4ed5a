"""What a worker takes of its machine: less of the processor than the server, and bounded memory."""

import ctypes
import gc
import os
import resource
import sys
from contextlib import suppress
from pathlib import Path

QUIET_THREADS = {"OMP_WAIT_POLICY": "PASSIVE"}
"""Has idle threads of tensor operations sleep, where they would spin on a core that the server
needs. Read once, when torch is first imported."""

KILLED_FIRST = "500"
"""Of 1000: has a machine without memory end the worker and not the server."""

OOM_SCORE = Path("/proc/self/oom_score_adj")


def quieten_threads() -> None:
    """Set what torch reads when it is first imported; whoever set it otherwise meant it."""
    assert "torch" not in sys.modules, "torch has read its environment already"
    for name, value in QUIET_THREADS.items():
        os.environ.setdefault(name, value)


def step_back(niceness: int) -> None:
    """Leave the processor, and in need the memory, to others.

    Args:
        niceness: how far, from 0 to 19.
    """
    os.nice(niceness)
    # Elsewhere than on Linux, nothing like it exists.
    with suppress(OSError):
        OOM_SCORE.write_text(KILLED_FIRST)


def limit_memory(most: int | None) -> None:
    """Have allocations fail beyond a limit, so that a job that is too large fails by itself.

    What is mapped from files, such as weights, does not count.

    Args:
        most: bytes; None for no limit.
    """
    if most is None:
        return
    _, ceiling = resource.getrlimit(resource.RLIMIT_DATA)
    if ceiling != resource.RLIM_INFINITY:
        most = min(most, ceiling)
    resource.setrlimit(resource.RLIMIT_DATA, (most, ceiling))


def give_memory_back() -> None:
    """Return what a job has left behind to the machine: the next one may be small, or hours away."""
    gc.collect()
    # Elsewhere than with glibc, nothing like it exists.
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def default_threads() -> int:
    """Half of the cores this process may use, at least one."""
    # Not every system tells which cores a process may use.
    usable = (
        os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    )
    return max(1, len(usable) // 2)
