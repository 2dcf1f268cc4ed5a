"""Stops the work on a request whose client has gone."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect

KEY = "departure"
"""Where the HTTP protocol leaves a request's :class:`Departure`, in the scope's state."""

T = TypeVar("T")


class Departure:
    """Whether the client of one request has gone; the HTTP protocol tells.

    To be told costs nothing while the client stays. Waiting for the server's message about it, as
    any application may, takes a task for every request.

    Attributes:
        gone: whether it has.
        listener: called once when it goes.
    """

    __slots__ = ("gone", "listener")

    def __init__(self) -> None:
        self.gone = False
        self.listener: Callable[[], object] | None = None

    def told(self) -> bool:
        """Whether it has gone, which may change while anything is awaited."""
        return self.gone

    def tell(self) -> None:
        """The client has gone."""
        self.gone = True
        if self.listener is not None:
            self.listener()


async def while_connected(state: Mapping[str, Any], work: Coroutine[Any, Any, T]) -> T:
    """Run `work` until it is done or the client is gone.

    Args:
        state: of the request's scope. Where the server tells of no departures, none are noticed.
        work: is cancelled where the client goes away.

    Raises:
        ClientDisconnect: the client went away.
    """
    departure: Departure | None = state.get(KEY)
    if departure is None:
        return await work
    if departure.told():
        work.close()
        raise ClientDisconnect
    caller = asyncio.current_task()
    assert caller is not None, "awaited in a task"
    departure.listener = caller.cancel
    try:
        return await work
    except asyncio.CancelledError:
        # The server may be cancelling as well, on shutdown; that goes first.
        if departure.told() and caller.uncancel() == 0:
            raise ClientDisconnect from None
        raise
    finally:
        departure.listener = None
