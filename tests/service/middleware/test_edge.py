import asyncio
import gc
import json
from types import SimpleNamespace

import pytest
import structlog
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from structlog.testing import capture_logs

from service.errors import BadRequest, PayloadTooLarge
from service.metrics import Metrics
from service.middleware.edge import Edge
from service.middleware.exchange import CLIENT_GONE, Exchange
from service.notes import FAULT, KEY, notes_of
from tests.service.middleware.support import Conversation


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(tasks=5)


def edge(app: ASGIApp, metrics: Metrics, limit: int = 1000) -> Edge:
    return Edge(app, metrics, lambda scope: limit)


async def inner(scope: Scope, receive: Receive, send: Send) -> None:
    scope["route"] = SimpleNamespace(path="/v1/things/{thing}")
    notes = notes_of(scope)
    notes.rows, notes.tasks = 3, ("a", "b")
    await Response(b"fine", 201)(scope, receive, send)


async def test_the_id_is_echoed_and_known_inside(metrics: Metrics) -> None:
    seen: list[object] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(notes_of(scope).request_id)
        seen.append(structlog.contextvars.get_contextvars()["request_id"])
        await Response()(scope, receive, send)

    request = Conversation(headers=[(b"x-request-id", b"abc-123")])
    await request.run(edge(app, metrics))
    assert request.headers[b"x-request-id"] == b"abc-123"
    assert seen == ["abc-123", "abc-123"]


async def test_one_line_and_the_metrics_are_left(metrics: Metrics) -> None:
    with capture_logs() as logs:
        await Conversation().run(edge(inner, metrics))
    (line,) = logs
    assert line.pop("duration_ms") >= 0
    assert line == {
        "event": "request",
        "log_level": "info",
        "method": "POST",
        "route": "/v1/things/{thing}",
        "status": 201,
        "code": None,
        "rows": 3,
        "tasks": 2,
    }
    value = metrics.registry.get_sample_value
    for task in ("a", "b"):
        assert value("capsule_requests_total", {"task": task, "code": "201"}) == 1
    route = {"route": "/v1/things/{thing}"}
    assert value("capsule_request_duration_seconds_count", route) == 1


async def test_paths_that_are_no_route_share_a_label(metrics: Metrics) -> None:
    app = edge(Response(status_code=404), metrics)
    for path in ("/a", "/b"):
        await Conversation(path=path).run(app)
    name = "capsule_request_duration_seconds_count"
    assert metrics.registry.get_sample_value(name, {"route": "unmatched"}) == 2


async def test_a_request_without_a_reply_is_logged_as_gone(metrics: Metrics) -> None:
    async def cancelled(scope: Scope, receive: Receive, send: Send) -> None:
        raise asyncio.CancelledError

    with capture_logs() as logs, pytest.raises(asyncio.CancelledError):
        await Conversation().run(edge(cancelled, metrics))
    assert logs[0]["status"] == CLIENT_GONE


async def test_the_unforeseen_is_a_problem_that_tells_nothing(metrics: Metrics) -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("the password is swordfish")

    request = Conversation(headers=[(b"x-request-id", b"id")])
    with capture_logs() as logs:
        await request.run(edge(broken, metrics))
    assert request.status == 500
    assert b"swordfish" not in request.body
    assert b"RuntimeError" not in request.body
    problem = json.loads(request.body)
    assert (problem["code"], problem["request_id"]) == ("internal_error", "id")
    error, line = logs
    assert (error["event"], error["log_level"], error["exc_info"]) == (
        "unexpected_error",
        "error",
        True,
    )
    assert (line["status"], line["code"]) == (500, "internal_error")


async def test_a_limit_that_cannot_be_told_is_answered_for(metrics: Metrics) -> None:
    def limit(scope: Scope) -> int:
        raise RuntimeError("no such route")

    async def reading(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()

    request = Conversation(b"x", headers=[(b"content-length", b"1")])
    with capture_logs() as logs:
        await request.run(Edge(reading, metrics, limit))
    assert request.status == 500
    assert [entry["event"] for entry in logs] == ["unexpected_error", "request"]


async def test_a_reply_that_has_begun_is_broken_off(metrics: Metrics) -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("too late")

    request = Conversation()
    with capture_logs(), pytest.raises(RuntimeError, match="too late"):
        await request.run(edge(broken, metrics))
    assert len(request.sent) == 1


async def test_what_the_protocol_could_not_read_leads_to_no_route(metrics: Metrics) -> None:
    request = Conversation(state={FAULT: BadRequest("Broken.", code="malformed_request")})
    await request.run(edge(inner, metrics))
    assert (request.status, json.loads(request.body)["code"]) == (400, "malformed_request")
    assert "route" not in request.scope


async def test_the_limit_is_that_of_the_route(metrics: Metrics) -> None:
    async def reading(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await receive()
        except PayloadTooLarge:
            await Response(status_code=413)(scope, receive, send)
        else:
            await Response()(scope, receive, send)

    app = Edge(reading, metrics, lambda scope: 3 if scope["path"] == "/small" else 5)
    for path, status in (("/small", 413), ("/large", 200)):
        request = Conversation(b"xxxx", path=path, headers=[(b"content-length", b"4")])
        await request.run(app)
        assert request.status == status


async def test_a_request_leaves_nothing_that_refers_to_itself(metrics: Metrics) -> None:
    """What does is freed by the garbage collector only, at a cost to the requests after it."""
    request = Conversation()
    collects = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        await request.run(edge(inner, metrics))
        left = [one for one in gc.get_objects() if isinstance(one, Exchange)]
    finally:
        if collects:
            gc.enable()
    assert left == []
    assert request.scope["state"].keys() == {KEY}


@pytest.mark.parametrize("kind", ["lifespan", "websocket"])
async def test_other_protocols_pass(metrics: Metrics, kind: str) -> None:
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["type"])
        raise RuntimeError("their own affair")

    with capture_logs() as logs, pytest.raises(RuntimeError):
        await Conversation(type=kind).run(edge(app, metrics))
    assert (seen, logs) == ([kind], [])
