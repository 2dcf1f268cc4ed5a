import asyncio
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from service.lean import JsonReply, LeanLane, LeanRoute
from service.notes import ANSWER


class Teapot(Exception):
    """Told by a handler of the application."""


class LittleTeapot(Teapot):
    """Told by the handler of its parent."""


def an_app(*, lane: bool) -> FastAPI:
    """A lean route and a plain one; with the lane, its app tells who went which way."""
    router = APIRouter(prefix="/things", tags=["things"], route_class=LeanRoute)

    @router.post("", summary="Make a thing", responses={418: {"description": "Teapot"}})
    async def make(request: Request) -> Response:
        body = await request.body()
        if body == b"teapot":
            raise LittleTeapot
        if body == b"http":
            raise HTTPException(409)
        if body == b"bug":
            raise RuntimeError("bug")
        return JsonReply(body, (b"x-way", request.scope["route"].path.encode()))

    app = FastAPI(redirect_slashes=False)
    app.router.routes.extend(router.routes)

    @app.get("/plain")
    async def plain() -> str:
        return "plain"

    if lane:
        app.add_middleware(LeanLane, routes=app.router.routes, handlers=app.exception_handlers)

    async def on_teapot(request: Request, error: Exception) -> Response:
        return Response(status_code=418)

    app.add_exception_handler(Teapot, on_teapot)
    return app


@pytest.mark.parametrize("lane", [False, True])
def test_both_ways_lead_to_the_same_end(lane: bool) -> None:
    client = TestClient(an_app(lane=lane))
    made = client.post("/things", content=b'"made"')
    assert (made.status_code, made.json()) == (200, "made")
    assert made.headers["content-type"] == "application/json"
    assert made.headers["content-length"] == "6"
    assert made.headers["x-way"] == "/things"
    assert client.post("/things", content=b"teapot").status_code == 418
    assert client.post("/things", content=b"http").status_code == 409
    wrong = client.get("/things")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    assert client.post("/things/").status_code == 404
    assert client.get("/plain").json() == "plain"
    with pytest.raises(RuntimeError, match="bug"):
        client.post("/things", content=b"bug")


@pytest.mark.parametrize(
    ("scope", "past"),
    [
        ({}, True),
        ({"method": "GET"}, False),
        ({"path": "/things/"}, False),
        ({"root_path": "/api", "path": "/api/things"}, False),
        ({"type": "lifespan"}, False),
    ],
)
def test_only_requests_for_lean_routes_go_past_the_framework(
    scope: dict[str, Any], past: bool
) -> None:
    inside: list[str] = []

    async def framework(scope: Scope, receive: Receive, send: Send) -> None:
        inside.append(scope["type"])

    async def receive() -> Any:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    lane = LeanLane(framework, an_app(lane=False).routes, {})
    wanted = {"type": "http", "method": "POST", "path": "/things", "root_path": "", "headers": []}
    asyncio.run(lane({**wanted, **scope}, receive, send))
    assert (bool(sent), bool(inside)) == (past, not past)


def test_it_is_documented_as_any_route() -> None:
    operation = an_app(lane=True).openapi()["paths"]["/things"]["post"]
    assert operation["summary"] == "Make a thing"
    assert operation["tags"] == ["things"]
    assert "418" in operation["responses"]


@pytest.mark.parametrize("able", [True, False])
async def test_a_reply_goes_out_at_once_where_the_server_can(*, able: bool) -> None:
    given: list[bytes] = []
    sent: list[Any] = []

    def answer(scope: Scope, lines: bytes, content: bytes) -> bool:
        given.append(lines + content)
        return able

    async def receive() -> Any:
        raise AssertionError("nothing is read")

    async def send(message: Any) -> None:
        sent.append(message["type"])

    scope = {"type": "http", "state": {ANSWER: answer}}
    await JsonReply(b"{}", (b"x-way", b"short"))(scope, receive, send)
    head = b"content-type: application/json\r\ncontent-length: 2\r\nx-way: short\r\n"
    assert given == [head + b"{}"]
    assert sent == ([] if able else ["http.response.start", "http.response.body"])
