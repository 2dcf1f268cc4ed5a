import json

import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from structlog.testing import capture_logs

from service.middleware.failures import UnexpectedErrors
from service.notes import KEY, RequestNotes
from tests.service.middleware.support import Exchange


def exchange() -> Exchange:
    return Exchange(state={KEY: RequestNotes("id", 0.0)})


async def test_the_unforeseen_is_a_problem_that_tells_nothing() -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("the password is swordfish")

    request = exchange()
    with capture_logs() as logs:
        await request.run(UnexpectedErrors(broken))
    assert request.status == 500
    assert b"swordfish" not in request.body
    assert b"RuntimeError" not in request.body
    problem = json.loads(request.body)
    assert (problem["code"], problem["request_id"]) == ("internal_error", "id")
    (line,) = logs
    assert (line["event"], line["log_level"], line["exc_info"]) == (
        "unexpected_error",
        "error",
        True,
    )


async def test_a_reply_that_has_begun_is_broken_off() -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("too late")

    request = exchange()
    with capture_logs(), pytest.raises(RuntimeError, match="too late"):
        await request.run(UnexpectedErrors(broken))
    assert len(request.sent) == 1


async def test_what_goes_well_is_left_alone() -> None:
    request = exchange()
    await request.run(UnexpectedErrors(Response(b"fine")))
    assert (request.status, request.body) == (200, b"fine")


async def test_other_protocols_pass() -> None:
    async def inner(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("their own affair")

    with pytest.raises(RuntimeError):
        await Exchange(type="websocket").run(UnexpectedErrors(inner))
