"""What every test has: one thread for tensors, and little for the garbage collector to look at.

Imports no more than that takes, as the process that only hands out the tests reads it too.
"""

import gc
import os
from collections.abc import Generator

import pytest


def pytest_configure() -> None:
    """On tiny tensors more threads only wait for each other; on a busy machine, twenty times over.

    Torch reads this when it is imported, here and in the processes that tests start.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave what is imported out of garbage collections, each of which would look through it all."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()
