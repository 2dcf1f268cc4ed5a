"""Refuses bodies that are too large, before or while they are read."""

from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.body import too_large
from service.notes import notes_of
from service.problems import respond

MAX_DIGITS = 18

Limit = Callable[[Scope], int]
"""The most bytes that the body of a request may have."""


class BodyLimit:
    """Holds every body to the limit of its route, whatever the route does with it.

    A body that declares its length is refused unread; one that is streamed is cut off by an
    exception from `receive` once it has grown too large.
    """

    def __init__(self, app: ASGIApp, limit: Limit) -> None:
        self.app = app
        self.limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        limit = self.limit(scope)
        headers = dict(scope["headers"])
        if declares_more(headers.get(b"content-length", b""), limit):
            response = respond(too_large(limit), notes_of(scope))
            if b"expect" in headers:
                # The client holds the body back, so what comes next on this connection is unclear.
                response.headers["connection"] = "close"
            await response(scope, receive, send)
            return
        received = 0

        async def counting_receive() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > limit:
                raise too_large(limit)
            return message

        await self.app(scope, counting_receive, send)


def declares_more(length: bytes, limit: int) -> bool:
    """Whether a Content-Length is above the limit; one that is no number is the parser's affair."""
    # The digits are counted first: integers of any length are slow to read.
    return length.isdigit() and (len(length) > MAX_DIGITS or int(length) > limit)
