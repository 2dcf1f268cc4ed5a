"""Refuses requests that cannot be read to their end: too large, too slow or malformed."""

from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.body import too_large
from service.errors import ServiceError
from service.notes import FAULT, notes_of
from service.problems import respond

MAX_DIGITS = 18

Limit = Callable[[Scope], int]
"""The most bytes that the body of a request may have."""


class BodyLimit:
    """Holds every body to the limit of its route, whatever the route does with it.

    One that declares more is refused when the route begins to read it; one that is streamed is cut
    off once it has grown too large. Both by an exception from `receive`: the application answers,
    as it does for every error of a route. So it is with a body that the HTTP protocol could not
    read; a head that it could not read is refused here, since it leads to no route.
    """

    def __init__(self, app: ASGIApp, limit: Limit) -> None:
        self.app = app
        self.limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        malformed: ServiceError | None = scope["state"].get(FAULT)
        if malformed is not None:
            await respond(malformed, notes_of(scope))(scope, receive, send)
            return
        limit = self.limit(scope)
        declared = dict(scope["headers"]).get(b"content-length", b"")
        too_long = declares_more(declared, limit)
        received = 0

        async def counting_receive() -> Message:
            nonlocal received
            if too_long:
                raise too_large(limit)
            message = await receive()
            fault: ServiceError | None = scope["state"].get(FAULT)
            if fault is not None:
                raise fault
            received += len(message.get("body", b""))
            if received > limit:
                raise too_large(limit)
            return message

        await self.app(scope, counting_receive, send)


def declares_more(length: bytes, limit: int) -> bool:
    """Whether a Content-Length is above the limit; one that is no number is the parser's affair."""
    # The digits are counted first: integers of any length are slow to read.
    return length.isdigit() and (len(length) > MAX_DIGITS or int(length) > limit)
