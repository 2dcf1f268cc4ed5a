"""One request and its reply as they pass the edge."""

from collections.abc import Mapping

from starlette.types import Message, Receive, Scope, Send

from service.body import too_large
from service.errors import ServiceError
from service.middleware.body_limit import Limit, declares_more
from service.middleware.request_id import HEADER
from service.middleware.unread import CLOSE, Discard, ends_soon, has_body
from service.notes import ANSWER, FAULT, Answer, notes_of

CLIENT_GONE = 499
"""The status that is logged where no response could be sent; never seen by a client."""


class Exchange:
    """The two ends of a request that the application is given; one object, since each has both.

    The body is held to the limit of its route, whatever the route does with it: one that declares
    more is refused when the route begins to read it; one that is streamed is cut off once it has
    grown too large. Both by an exception from `receive`: the application answers, as it does for
    every error of a route. So it is with a body that the HTTP protocol could not read.

    The reply gets the request's id, and a client that is still sending its body sees it; see
    :class:`Discard`.

    Attributes:
        started: whether the reply has begun.
        status: of the reply.
    """

    __slots__ = (
        "discard",
        "ended",
        "headers",
        "limit",
        "limit_of",
        "received",
        "scope",
        "short_way",
        "sink",
        "source",
        "started",
        "status",
    )

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        headers: Mapping[bytes, bytes],
        limit: Limit,
        discard: Discard,
    ) -> None:
        """Begin.

        Args:
            scope: the request's, with its notes.
            receive: the server's end for the body.
            send: the server's end for the reply.
            headers: of the request, by name.
            limit: says how many bytes the body may have; asked once it is read.
            discard: takes in what is left of the body after the reply.
        """
        self.scope = scope
        self.source = receive
        self.sink = send
        self.headers = headers
        self.limit_of = limit
        self.limit: int | None = None
        self.discard = discard
        self.short_way: Answer | None = scope["state"].get(ANSWER)
        self.received = 0
        self.ended = not has_body(headers)
        self.started = False
        self.status = CLIENT_GONE

    async def receive(self) -> Message:
        """The next part of the body.

        Raises:
            PayloadTooLarge: there is more of it than there may be.
            ServiceError: the HTTP protocol could not read it.
        """
        if self.limit is None:
            self.limit = self.limit_of(self.scope)
        if declares_more(self.headers.get(b"content-length", b""), self.limit):
            raise too_large(self.limit)
        message = await self.take()
        fault: ServiceError | None = self.scope["state"].get(FAULT)
        if fault is not None:
            raise fault
        self.received += len(message.get("body", b""))
        if self.received > self.limit:
            raise too_large(self.limit)
        return message

    async def take(self) -> Message:
        """The next part of the body, whatever it is."""
        message = await self.source()
        # Also where the client has gone: that message has no `more_body`.
        if not message.get("more_body", False):
            self.ended = True
        return message

    async def send(self, message: Message) -> None:
        """Pass a part of the reply on; not its last one before the body has been read or given up."""
        self.started = True
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), *self.added()]
            await self.sink(message)
        elif self.ended or message.get("more_body", False):
            await self.sink(message)
        else:
            await self.sink({**message, "more_body": True})
            await self.discard(self.take)
            await self.sink({"type": "http.response.body", "body": b"", "more_body": False})

    def answer(self, scope: Scope, lines: bytes, content: bytes) -> bool:
        """Send a whole reply at once, if the server does such and the body has been read."""
        if not self.ended or self.short_way is None:
            return False
        named = b"%b%b: %b\r\n" % (lines, HEADER, notes_of(scope).request_id.encode())
        if not self.short_way(scope, named, content):
            return False
        self.started = True
        self.status = 200
        return True

    def added(self) -> list[tuple[bytes, bytes]]:
        """The headers that the reply gets here."""
        named = (HEADER, notes_of(self.scope).request_id.encode())
        return [named] if self.ended or ends_soon(self.headers) else [CLOSE, named]
