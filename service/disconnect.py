"""Stops the work on a request whose client has gone."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive

T = TypeVar("T")


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Run `work` until it is done or the client is gone.

    Args:
        receive: of a request whose body has been read, so that only its end is left to tell.
        work: is cancelled where the client goes away.

    Raises:
        ClientDisconnect: the client went away.
    """
    caller = asyncio.current_task()
    assert caller is not None, "awaited in a task"
    gone = False

    async def watch() -> None:
        nonlocal gone
        while (await receive())["type"] != "http.disconnect":
            pass
        gone = True
        caller.cancel()

    watcher = asyncio.create_task(watch())
    try:
        return await work
    except asyncio.CancelledError:
        # The server may be cancelling as well, on shutdown; that goes first.
        if gone and caller.uncancel() == 0:
            raise ClientDisconnect from None
        raise
    finally:
        watcher.cancel()
