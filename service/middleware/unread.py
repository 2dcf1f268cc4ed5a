"""Takes in what is left of a body that was answered before its end, so that the answer arrives."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from starlette.types import Receive

from service.middleware.body_limit import declares_more

DISCARDED_BYTES = 32 * 1024 * 1024
DISCARDING_S = 5.0
IDLE_S = 1.0
"""A client that has sent nothing for so long is not sending, or will hardly ever be done."""

CLOSE = (b"connection", b"close")


class Discard:
    """Lets a client that is still sending its body see the reply.

    To close a connection whose input has not been read resets it, and the reset destroys the reply
    on its way. So the reply is sent at once, and before it is declared complete the rest of the
    body is read and thrown away: up to a size, for a while. A connection where more than that may
    come, or none of it because the client waits for our word first, is closed afterwards.
    """

    def __init__(self, *, seconds: float = DISCARDING_S, idle: float = IDLE_S) -> None:
        """Set the limits.

        Args:
            seconds: how long to go on reading after the reply.
            idle: how long to wait for the next part.
        """
        self.seconds = seconds
        self.idle = idle

    async def __call__(self, receive: Receive) -> None:
        """Read a body to its end, or as far as the limits allow."""
        read = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(self.seconds):
                while read < DISCARDED_BYTES:
                    async with asyncio.timeout(self.idle):
                        message = await receive()
                    if not message.get("more_body", False):
                        return
                    read += len(message.get("body", b""))


def has_body(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a request announces a body."""
    return headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers


def ends_soon(headers: Mapping[bytes, bytes]) -> bool:
    """Whether all of a body is on its way and small enough to be thrown away."""
    length = headers.get(b"content-length")
    return (
        length is not None
        and not declares_more(length, DISCARDED_BYTES)
        and b"expect" not in headers
    )
