"""Takes every request in, and sees it off: with an id, within its limits, logged and counted."""

import time

import structlog
from starlette.types import ASGIApp, Receive, Scope, Send

from service.errors import InternalError, ServiceError
from service.metrics import Metrics
from service.middleware.body_limit import Limit
from service.middleware.exchange import Exchange
from service.middleware.request_id import request_id
from service.middleware.unread import Discard
from service.notes import ANSWER, FAULT, KEY, RequestNotes
from service.problems import respond

UNMATCHED = "unmatched"
"""Stands for every path that is no route, so that clients cannot make up metric labels."""


class Edge:
    """The one middleware, outermost; everything inside finds its :class:`RequestNotes` in the scope.

    What the HTTP protocol could not read leads to no route, so it is refused here. What nobody
    foresaw is logged, and told to the client as a bare 500: an exception's text stays in the log.
    """

    def __init__(
        self, app: ASGIApp, metrics: Metrics, limit: Limit, discard: Discard | None = None
    ) -> None:
        """Wrap an application.

        Args:
            app: answers.
            metrics: count the requests.
            limit: of each request's body.
            discard: takes in what is left of a body after the reply.
        """
        self.app = app
        self.metrics = metrics
        self.limit = limit
        self.discard = discard or Discard()
        # Bound once: a lazy logger would look up its configuration for every line.
        self.log = structlog.get_logger().bind()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        notes = RequestNotes(request_id(scope, headers), time.perf_counter())
        state = scope.setdefault("state", {})
        state[KEY] = notes
        # Never unbound: a server gives each request a context of its own.
        structlog.contextvars.bind_contextvars(request_id=notes.request_id)
        exchange = Exchange(scope, receive, send, headers, self.limit, self.discard)
        state[ANSWER] = exchange.answer
        try:
            malformed: ServiceError | None = state.get(FAULT)
            app = self.app if malformed is None else respond(malformed, notes)
            await app(scope, exchange.receive, exchange.send)
        except Exception:
            self.log.exception("unexpected_error", path=scope["path"])
            if exchange.started:
                # The status is out: only breaking the connection tells the client now.
                raise
            await respond(unexpected(), notes)(scope, exchange.receive, exchange.send)
        finally:
            # Each would keep the other until the next garbage collection.
            del state[ANSWER]
            self.report(scope, notes, exchange.status)

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


def unexpected() -> InternalError:
    """The error for what nobody foresaw."""
    return InternalError(
        "The server failed on this request; its log tells why under the request id.",
        code="internal_error",
    )
