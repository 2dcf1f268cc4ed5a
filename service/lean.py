"""A way past the framework for the endpoints where every microsecond counts."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from service.notes import ANSWER, Answer


class LeanRoute(APIRoute):
    """A route without parameters, whose endpoint takes the bare request and gives a response.

    It is documented, and works, like any other; with :class:`LeanLane` it also costs little.
    """


class LeanLane:
    """Calls the endpoints of lean routes at once.

    The framework's way to an endpoint (matching of paths, dependencies, two stacks of contexts,
    validation of the reply) costs more than reading a request and writing its reply do together.
    Errors are told by the application's own handlers, as on that way; whatever is no request for a
    lean route takes that way.
    """

    def __init__(
        self,
        app: ASGIApp,
        routes: Sequence[BaseRoute],
        handlers: Mapping[Any, Callable[..., Any]],
    ) -> None:
        """Wrap an application.

        Args:
            app: takes what is not for a lean route.
            routes: the application's; those that are not lean do not matter.
            handlers: the application's, by class of exception.
        """
        self.app = app
        self.handlers = handlers
        self.lanes = {
            (method, route.path): route
            for route in routes
            if isinstance(route, LeanRoute)
            for method in route.methods or ()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        route = None
        if scope["type"] == "http" and not scope["root_path"]:
            route = self.lanes.get((scope["method"], scope["path"]))
        if route is None:
            await self.app(scope, receive, send)
            return
        scope["route"] = route
        request = Request(scope, receive, send)
        try:
            response = await route.endpoint(request)
        except Exception as error:  # noqa: BLE001 - told by its class, or raised again
            response = await self.handler(error)(request, error)
        await response(scope, receive, send)

    def handler(self, error: Exception) -> Callable[..., Any]:
        """What answers for an exception, told by its class.

        Raises:
            Exception: the exception itself, where nothing does.
        """
        for kind in type(error).__mro__:
            if kind in self.handlers:
                return self.handlers[kind]
        raise error


class JsonReply(Response):
    """A reply of 200 in JSON, whose head is written down at once, to a request that is no HEAD."""

    def __init__(self, content: bytes, *headers: tuple[bytes, bytes]) -> None:
        """Prepare to send it.

        Args:
            content: JSON.
            headers: further ones, in lower case.
        """
        self.status_code = 200
        self.background = None
        self.body = content
        self.raw_headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(content)),
            *headers,
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it, all at once where the server can."""
        answer: Answer | None = scope.get("state", {}).get(ANSWER)
        if answer is None or not answer(scope, header_lines(self.raw_headers), bytes(self.body)):
            await super().__call__(scope, receive, send)


def header_lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Headers as they are sent."""
    return b"".join([b"%b: %b\r\n" % header for header in headers])
