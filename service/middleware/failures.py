"""The last resort: what nobody foresaw is logged, and told to the client as a bare 500."""

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import InternalError
from service.notes import notes_of
from service.problems import respond


class UnexpectedErrors:
    """Answers for an application that raised; its exception's text stays in the log."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.log = structlog.get_logger()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False

        async def noting_send(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self.app(scope, receive, noting_send)
        except Exception:
            self.log.exception("unexpected_error", path=scope["path"])
            if started:
                # The status is out: only breaking the connection tells the client now.
                raise
            response = respond(
                InternalError(
                    "The server failed on this request; its log tells why under the request id.",
                    code="internal_error",
                ),
                notes_of(scope),
            )
            await response(scope, receive, send)
