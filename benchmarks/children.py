"""Sides that are measured in a process each.

Libraries disturb each other where they share one: each has threads of its own, which spin for a
while after they have worked, and torch's number of threads is that of a whole process. A process
that is not asked for anything waits for its pipe, and takes nothing from the one that is.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.managers import BaseManager
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

NOTE = (
    "Each side runs in a process of its own, which waits while another is measured: libraries do "
    "not share threads or settings."
)


class Child(BaseManager):
    """A process that holds one side."""


def made(build: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Build a side; runs in its process."""
    return build(*args, **kwargs)


Child.register("made", made)


@contextmanager
def child(build: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
    """Build a side in a process of its own, which ends at the end; calls of its methods go there.

    Args:
        build: makes it; found by name in the other process.
        args: of `build`.
        kwargs: likewise.
    """
    with Child(ctx=get_context("spawn")) as process:
        side: T = process.made(build, *args, **kwargs)  # type: ignore[attr-defined]
        yield side
