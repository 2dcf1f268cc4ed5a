import pytest
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from service.errors import BadRequest, PayloadTooLarge
from service.middleware.exchange import CLIENT_GONE, Exchange
from service.middleware.unread import Discard
from service.notes import ANSWER, FAULT, KEY, RequestNotes
from tests.service.middleware.support import Conversation

LIMIT = 10
LINES = b"content-length: 2\r\n"


async def reading(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with how much it read."""
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message["body"])
        more = message["more_body"]
    await Response(str(size))(scope, receive, send)


def conversation(*body: bytes, **headers: str) -> Conversation:
    return Conversation(
        *body,
        headers=[(name.replace("_", "-").encode(), v.encode()) for name, v in headers.items()],
        state={KEY: RequestNotes("id", 0.0)},
    )


def passage(request: Conversation) -> Exchange:
    return Exchange(
        request.scope,
        request.receive,
        request.send,
        dict(request.scope["headers"]),
        lambda scope: LIMIT,
        Discard(seconds=0.2, idle=0.05),
    )


async def run(request: Conversation, app: ASGIApp) -> Exchange:
    made = passage(request)
    await app(request.scope, made.receive, made.send)
    return made


@pytest.mark.parametrize("length", ["11", "9" * 5000])
async def test_a_declared_length_is_refused_unread(length: str) -> None:
    request = conversation(b"x", content_length=length)
    with pytest.raises(PayloadTooLarge) as caught:
        await run(request, reading)
    assert request.read == 0
    assert caught.value.code == "body_too_large"
    assert str(LIMIT) in caught.value.detail


async def test_a_body_that_is_not_read_may_declare_what_it_likes() -> None:
    request = conversation(b"x", content_length="11")
    await run(request, Response(b"fine"))
    assert (request.status, request.body) == (200, b"fine")


@pytest.mark.parametrize("length", ["10", "0", "nonsense", "-1", ""])
async def test_other_lengths_go_through(length: str) -> None:
    request = conversation(b"x" * LIMIT, content_length=length)
    await run(request, reading)
    assert (request.status, request.body) == (200, b"10")


async def test_a_stream_is_cut_off_where_it_passes_the_limit() -> None:
    request = conversation(b"x" * 6, b"x" * 6, b"x" * 6)
    with pytest.raises(PayloadTooLarge) as caught:
        await run(request, reading)
    assert caught.value.code == "body_too_large"
    assert request.read == 2


async def test_a_stream_of_just_the_limit_goes_through() -> None:
    request = conversation(b"x" * 6, b"x" * 4)
    await run(request, reading)
    assert request.body == b"10"


async def test_a_fault_of_the_protocol_ends_the_reading() -> None:
    request = conversation(b"x")
    request.scope["state"][FAULT] = BadRequest("Broken.", code="malformed_request")
    with pytest.raises(BadRequest):
        await run(request, reading)


async def test_the_reply_gets_the_id_and_its_status_is_known() -> None:
    request = conversation(b"x")
    made = passage(request)
    assert (made.started, made.status) == (False, CLIENT_GONE)
    await Response(b"fine", 201)(request.scope, made.receive, made.send)
    assert (made.started, made.status) == (True, 201)
    assert request.headers[b"x-request-id"] == b"id"


def told(request: Conversation, *, does: bool) -> list[bytes]:
    """What the server is given to answer with at once, which it does or does not."""
    given: list[bytes] = []

    def answer(scope: Scope, lines: bytes, content: bytes) -> bool:
        assert scope is request.scope
        given.append(lines + content)
        return does

    request.scope["state"][ANSWER] = answer
    return given


async def test_a_whole_reply_goes_out_at_once_with_the_id() -> None:
    request = conversation(b"x", content_length="1")
    given = told(request, does=True)
    made = passage(request)
    await made.receive()
    assert made.answer(request.scope, LINES, b"{}")
    assert given == [b"content-length: 2\r\nx-request-id: id\r\n{}"]
    assert (made.started, made.status) == (True, 200)


async def test_no_whole_reply_before_the_body_has_been_read() -> None:
    request = conversation(b"x", content_length="1")
    given = told(request, does=True)
    made = passage(request)
    assert not made.answer(request.scope, LINES, b"{}")
    assert (given, made.started) == ([], False)


async def test_a_server_may_decline_to_answer_at_once() -> None:
    request = conversation()
    given = told(request, does=False)
    made = passage(request)
    assert not made.answer(request.scope, LINES, b"{}")
    assert (len(given), made.started, made.status) == (1, False, CLIENT_GONE)


async def test_other_servers_do_not_answer_at_once() -> None:
    request = conversation()
    assert not passage(request).answer(request.scope, LINES, b"{}")
