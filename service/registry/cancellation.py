"""Work that has to be finished once it is begun, whatever becomes of the client."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def finish(
    work: Coroutine[Any, Any, T] | asyncio.Future[T], undo: Callable[[T], None] | None = None
) -> T:
    """Run `work` to its end, even where the caller is cancelled meanwhile.

    The cancellation is held back until the work is done, so locks that the caller holds are held
    as long; then it goes its way, and the result is lost.

    Args:
        work: what must not be left half done.
        undo: takes a result back that the cancelled caller will never see.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return task.result()
    if undo is not None and not task.cancelled() and task.exception() is None:
        undo(task.result())
    raise cancelled
