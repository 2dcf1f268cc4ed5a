"""Replies reach clients that are still sending, over bare ASGI and over real sockets."""

import asyncio
import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import pytest
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.app import create_app
from service.middleware.exchange import Exchange
from service.middleware.unread import DISCARDED_BYTES, Discard
from service.notes import KEY, RequestNotes
from tests.service.middleware.support import Conversation
from tests.support.edge import (
    PATIENCE_S,
    EdgeEngine,
    an_artefact,
    serving,
    settings_for,
    with_engine,
)

MIB = 1024 * 1024


async def reading(scope: Scope, receive: Receive, send: Send) -> None:
    """Reads the first part of the body, or all of it where it has one, and answers."""
    await receive()
    await Response(b"fine")(scope, receive, send)


def conversation(*body: bytes, **headers: str) -> Conversation:
    return Conversation(
        *body,
        headers=[(n.replace("_", "-").encode(), v.encode()) for n, v in headers.items()],
        state={KEY: RequestNotes("id", 0.0)},
    )


def unread(app: ASGIApp) -> ASGIApp:
    """The application behind the edge's ends of a request, with little patience."""

    async def behind(scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        discard = Discard(seconds=0.2, idle=0.05)
        passage = Exchange(scope, receive, send, headers, lambda scope: 100, discard)
        await app(scope, passage.receive, passage.send)

    return behind


async def test_the_reply_goes_out_before_the_rest_is_read() -> None:
    request = conversation(b"a", b"b", b"c", content_length="3")
    read_at: list[int] = []

    async def send(message: Message) -> None:
        read_at.append(request.read)
        await request.send(message)

    await unread(Response(b"no", 415))(request.scope, request.receive, send)
    assert (request.status, request.body, request.read) == (415, b"no", 3)
    assert read_at == [0, 0, 3]
    assert [message.get("more_body") for message in request.sent[1:]] == [True, False]
    assert b"connection" not in request.headers


async def test_a_body_that_was_read_is_left_alone() -> None:
    request = conversation(b"all", content_length="3")
    await request.run(unread(reading))
    assert (request.read, len(request.sent), request.body) == (1, 2, b"fine")


@pytest.mark.parametrize("headers", [{}, {"content_length": "0"}])
async def test_a_request_without_a_body_is_left_alone(headers: dict[str, str]) -> None:
    request = conversation(**headers)
    await request.run(unread(Response(b"fine")))
    assert (request.read, len(request.sent)) == (0, 2)


@pytest.mark.parametrize(
    "headers",
    [
        {"content_length": "3", "expect": "100-continue"},
        {"content_length": str(DISCARDED_BYTES + 1)},
        {"content_length": "9" * 5000},
        {"transfer_encoding": "chunked"},
    ],
)
async def test_a_connection_is_closed_where_more_may_come(headers: dict[str, str]) -> None:
    request = conversation(b"a", b"b", **headers)
    await request.run(unread(Response(b"no", 413)))
    assert request.headers[b"connection"] == b"close"
    assert (request.body, request.read) == (b"no", 2)


async def test_so_much_is_thrown_away_and_no_more() -> None:
    part = b"x" * (DISCARDED_BYTES // 4)
    request = conversation(*[part] * 8, transfer_encoding="chunked")
    await request.run(unread(Response(b"no", 413)))
    assert request.read == 4


@pytest.mark.parametrize("pause", [0.02, 10.0])
async def test_a_slow_client_is_waited_for_a_while(pause: float) -> None:
    """Not for long in all, and less where it sends nothing."""
    request = conversation(content_length="99")

    async def receive() -> Message:
        await asyncio.sleep(pause)
        request.read += 1
        return {"type": "http.request", "body": b"x", "more_body": True}

    async with asyncio.timeout(PATIENCE_S):
        await unread(Response(b"no", 413))(request.scope, receive, request.send)
    assert request.body == b"no"
    assert (0 < request.read < 99) if pause < 1 else request.read == 0


async def test_a_client_that_has_gone_is_not_waited_for() -> None:
    request = conversation(content_length="99")

    async def receive() -> Message:
        assert request.read == 0
        request.read += 1
        return {"type": "http.disconnect"}

    await unread(Response(b"no", 413))(request.scope, receive, request.send)
    assert request.read == 1


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("unread")
    build = with_engine(EdgeEngine(), [an_artefact("trec", labels=("no", "yes"))])
    with serving(create_app(settings_for(folder), build=build)) as address:
        yield address


def post(url: str, body: bytes, **headers: str) -> tuple[int, str]:
    """Post as `urllib` does, which asks the server to close and sends all before it listens."""
    request = urllib.request.Request(
        url, body, {n.replace("_", "-"): v for n, v in headers.items()}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with pytest.raises(urllib.error.HTTPError) as caught:
        opener.open(request, timeout=PATIENCE_S)
    with caught.value as reply:
        return reply.code, json.loads(reply.read())["code"]


@pytest.mark.parametrize(
    ("path", "content_type", "status", "code"),
    [
        ("/v1/classify", "application/json", HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "body_too_large"),
        ("/v1/classify", "text/plain", HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type"),
        ("/v1/nothing", "application/json", HTTPStatus.NOT_FOUND, "path_not_found"),
        ("/v1/models", "application/json", HTTPStatus.METHOD_NOT_ALLOWED, "method_not_allowed"),
    ],
)
def test_an_error_reaches_a_client_that_asks_to_close(
    url: str, path: str, content_type: str, status: int, code: str
) -> None:
    assert post(url + path, b" " * 6 * MIB, content_type=content_type) == (status, code)


def test_an_upload_that_is_too_large_is_told_so(url: str) -> None:
    body = b" " * 20 * MIB
    content_type = "application/octet-stream"
    assert post(f"{url}/v1/capsules", body, content_type=content_type) == (413, "body_too_large")


def connect(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE_S)


HEAD = b"POST /v1/classify HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


def test_a_stream_that_is_too_large_is_told_so(url: str) -> None:
    with connect(url) as client:
        client.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(6):
            client.sendall(b"%x\r\n%s\r\n" % (MIB, b" " * MIB))
        client.sendall(b"0\r\n\r\n")
        reply = b"".join(iter(lambda: client.recv(65536), b""))
    assert reply.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close\r\n" in reply
    assert b'"code":"body_too_large"' in reply


def test_a_connection_that_stays_open_serves_the_next_request(url: str) -> None:
    body = b'{"task":"trec","text":"What is an atom?"}'
    with connect(url) as client, client.makefile("rb") as replies:
        client.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % (6 * MIB) + b" " * 6 * MIB)
        client.sendall(HEAD + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body)
        both = replies.read()
    first, _, second = both.rpartition(b"HTTP/1.1 ")
    assert first.startswith(b"HTTP/1.1 413 ")
    assert second.startswith(b"200 ")


def test_a_client_that_waits_for_our_word_is_hung_up_on(url: str) -> None:
    with connect(url) as client:
        client.sendall(HEAD + b"Content-Length: %d\r\nExpect: 100-continue\r\n\r\n" % (6 * MIB))
        reply = b"".join(iter(lambda: client.recv(65536), b""))
    assert reply.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close\r\n" in reply
