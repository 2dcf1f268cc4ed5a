"""Gives each request its id, and leaves one log line and its metrics when it is over."""

import re
import time
from random import getrandbits

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.metrics import Metrics
from service.notes import KEY, RequestNotes

HEADER = b"x-request-id"
ACCEPTABLE_ID = re.compile(rb"[ -~]{1,128}")
UNMATCHED = "unmatched"
"""Stands for every path that is no route, so that clients cannot make up metric labels."""

CLIENT_GONE = 499
"""The status that is logged where no response could be sent; never seen by a client."""


class RequestObserver:
    """The outermost middleware; everything inside finds its :class:`RequestNotes` in the scope."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app = app
        self.metrics = metrics
        # Bound once: a lazy logger would look up its configuration for every line.
        self.log = structlog.get_logger().bind()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        notes = RequestNotes(request_id(scope), time.perf_counter())
        scope.setdefault("state", {})[KEY] = notes
        header = (HEADER, notes.request_id.encode())
        status = CLIENT_GONE

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), header]
            await send(message)

        # Never unbound: a server gives each request a context of its own.
        structlog.contextvars.bind_contextvars(request_id=notes.request_id)
        try:
            await self.app(scope, receive, send_with_id)
        finally:
            self.report(scope, notes, status)

    def report(self, scope: Scope, notes: RequestNotes, status: int) -> None:
        """Log and count a request that is over."""
        seconds = time.perf_counter() - notes.started
        route = getattr(scope.get("route"), "path", None)
        self.metrics.request_finished(
            route=route or UNMATCHED,
            status=status,
            tasks=notes.tasks,
            code=notes.code,
            seconds=seconds,
        )
        self.log.info(
            "request",
            method=scope["method"],
            route=route,
            status=status,
            code=notes.code,
            duration_ms=round(seconds * 1000, 3),
            rows=notes.rows,
            tasks=len(notes.tasks),
        )


def request_id(scope: Scope) -> str:
    """The client's id for a request where it is fit to be logged and echoed, else a new one."""
    for name, value in scope["headers"]:
        if name == HEADER and ACCEPTABLE_ID.fullmatch(value):
            return str(value, "ascii")
    # Not from the system's source of randomness: to be one of a kind is enough.
    return f"{getrandbits(128):032x}"
