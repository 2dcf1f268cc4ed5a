import asyncio
from types import SimpleNamespace

import pytest
import structlog
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from structlog.testing import capture_logs

from service.metrics import Metrics
from service.middleware.observer import CLIENT_GONE, RequestObserver
from service.notes import notes_of
from tests.service.middleware.support import Exchange


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(tasks=5)


async def inner(scope: Scope, receive: Receive, send: Send) -> None:
    scope["route"] = SimpleNamespace(path="/v1/things/{thing}")
    notes = notes_of(scope)
    notes.rows, notes.tasks = 3, ("a", "b")
    await Response(b"fine", 201)(scope, receive, send)


@pytest.mark.parametrize("given", ["abc-123", "with space", "~" * 128, "!"])
async def test_a_fit_id_is_echoed_and_known_inside(metrics: Metrics, given: str) -> None:
    seen: list[object] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(notes_of(scope).request_id)
        seen.append(structlog.contextvars.get_contextvars()["request_id"])
        await Response()(scope, receive, send)

    request = Exchange(headers=[(b"x-request-id", given.encode())])
    await request.run(RequestObserver(app, metrics))
    assert request.headers[b"x-request-id"] == given.encode()
    assert seen == [given, given]


@pytest.mark.parametrize("given", [b"", b"~" * 129, b"caf\xe9", b"a\x00b", b"a\tb", b"\x1b[31m"])
async def test_an_unfit_id_is_replaced(metrics: Metrics, given: bytes) -> None:
    request = Exchange(headers=[(b"x-request-id", given)])
    await request.run(RequestObserver(inner, metrics))
    made = request.headers[b"x-request-id"]
    assert made != given
    assert len(made) == 32


async def test_every_request_gets_an_id_of_its_own(metrics: Metrics) -> None:
    app = RequestObserver(inner, metrics)
    requests = [Exchange() for _ in range(10)]
    for request in requests:
        await request.run(app)
    assert len({request.headers[b"x-request-id"] for request in requests}) == 10


async def test_one_line_and_the_metrics_are_left(metrics: Metrics) -> None:
    with capture_logs() as logs:
        await Exchange().run(RequestObserver(inner, metrics))
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
    app = RequestObserver(Response(status_code=404), metrics)
    for path in ("/a", "/b"):
        await Exchange(path=path).run(app)
    name = "capsule_request_duration_seconds_count"
    assert metrics.registry.get_sample_value(name, {"route": "unmatched"}) == 2


async def test_a_request_without_a_reply_is_logged_as_gone(metrics: Metrics) -> None:
    async def cancelled(scope: Scope, receive: Receive, send: Send) -> None:
        raise asyncio.CancelledError

    with capture_logs() as logs, pytest.raises(asyncio.CancelledError):
        await Exchange().run(RequestObserver(cancelled, metrics))
    assert logs[0]["status"] == CLIENT_GONE


async def test_other_protocols_pass(metrics: Metrics) -> None:
    with capture_logs() as logs:
        await Exchange(type="lifespan").run(RequestObserver(Response(), metrics))
    assert logs == []
