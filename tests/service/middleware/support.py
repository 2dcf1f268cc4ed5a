"""Bare ASGI: one request against one application."""

from typing import Any

from starlette.types import ASGIApp, Message


class Conversation:
    """One request and what came back.

    Attributes:
        sent: the messages of the response.
        read: how many parts of the body were asked for.
    """

    def __init__(self, *body: bytes, **scope: Any) -> None:
        self.parts = list(body) or [b""]
        self.read = 0
        self.sent: list[Message] = []
        self.scope: dict[str, Any] = {
            "type": "http",
            "method": "POST",
            "path": "/x",
            "headers": [],
            "state": {},
            **scope,
        }

    async def receive(self) -> Message:
        part = self.parts[self.read]
        self.read += 1
        return {
            "type": "http.request",
            "body": part,
            "more_body": self.read < len(self.parts),
        }

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    async def run(self, app: ASGIApp) -> None:
        await app(self.scope, self.receive, self.send)

    @property
    def status(self) -> int:
        status: int = self.sent[0]["status"]
        return status

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)
