"""What clients may do to a connection, by raw sockets against a real server on a fake engine."""

import json
import re
import select
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from structlog.testing import capture_logs

from service import protocol
from service.app import create_app
from service.middleware.exchange import CLIENT_GONE
from service.protocol import (
    AHEAD_BYTES,
    MAX_HEAD_BYTES,
    MAX_TARGET_BYTES,
    PART_BYTES,
    BoundedProtocol,
)
from tests.support.edge import (
    PATIENCE_S,
    EdgeEngine,
    an_artefact,
    serving,
    settings_for,
    wait_until,
    with_engine,
)

WINDOW_S = 0.4
"""Short enough to wait for, long enough for a busy machine to send what it means to."""

STEADY_S = 1.0
"""Long enough not to be missed by a test that means to keep up, on a busy machine."""

HEAD = b"GET /livez HTTP/1.1\r\nHost: x\r\n"
BODY = b'{"task":"trec","text":"a"}'
POST = b"POST /v1/classify HTTP/1.1\r\nHost: x\r\n"
SLOW = b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
BIG = 64 * 1024 * 1024


async def big(request: Request) -> Response:
    """More than the buffers between server and client hold."""
    return Response(bytes(BIG))


@dataclass(frozen=True)
class Reply:
    """A response as it came over the wire."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def problem(self) -> dict[str, Any]:
        assert self.headers["content-type"] == "application/problem+json"
        problem: dict[str, Any] = json.loads(self.body)
        assert problem["status"] == self.status
        assert problem["request_id"] == self.headers["x-request-id"]
        return problem


@pytest.fixture(scope="module")
def model() -> EdgeEngine:
    return EdgeEngine()


@pytest.fixture
def engine(model: EdgeEngine) -> Iterator[EdgeEngine]:
    """The server's engine, as good as new afterwards."""
    yield model
    model.gate.set()


@pytest.fixture(scope="module")
def app(model: EdgeEngine, tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    settings = settings_for(tmp_path_factory.mktemp("data"))
    app = create_app(settings, build=with_engine(model, [an_artefact("trec")]))

    async def slow(request: Request) -> Response:
        await model.gate.wait()
        return Response()

    app.router.routes += [Route("/big", big), Route("/slow", slow)]
    return app


@pytest.fixture(scope="module")
def shared(app: FastAPI) -> Iterator[str]:
    with serving(app) as url:
        yield url


@pytest.fixture
def url(shared: str) -> Iterator[str]:
    """A server that is as healthy after each test."""
    yield shared
    assert httpx2.get(f"{shared}/livez").status_code == 200


@pytest.fixture
def own(tmp_path: Path) -> FastAPI:
    """An app to be started and stopped."""
    return create_app(
        settings_for(tmp_path), build=with_engine(EdgeEngine(), [an_artefact("trec")])
    )


@contextmanager
def connections(url: str) -> Iterator[Callable[[], socket.socket]]:
    """Makes connections to a server, which are closed at the end."""
    place = httpx2.URL(url)
    with ExitStack() as stack:

        def connect() -> socket.socket:
            raw = socket.create_connection((place.host, place.port or 0), timeout=PATIENCE_S)
            return stack.enter_context(raw)

        yield connect


@pytest.fixture
def connect(url: str) -> Iterator[Callable[[], socket.socket]]:
    with connections(url) as connect:
        yield connect


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little patience with slow clients."""
    monkeypatch.setattr(protocol, "WINDOW_S", WINDOW_S)


def send(raw: socket.socket, *parts: bytes) -> None:
    """Send all that the server takes; it may hang up before the end."""
    try:
        for part in parts:
            raw.sendall(part)
    except (BrokenPipeError, ConnectionResetError):
        return


def rest(raw: socket.socket) -> bytes:
    """Everything until the server hangs up."""
    found = b""
    try:
        while data := raw.recv(1024 * 1024):
            found += data
    except ConnectionResetError:
        # It had more to read than it took.
        pass
    return found


def replies(data: bytes) -> list[Reply]:
    """The responses in what a server sent."""
    found = []
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        headers = {
            name.lower(): value.strip() for name, value in (line.split(":", 1) for line in lines)
        }
        length = int(headers["content-length"])
        found.append(Reply(int(status.split()[1]), headers, data[:length]))
        data = data[length:]
    return found


def next_reply(raw: socket.socket) -> Reply:
    """One response; the server may not hang up after it, or not at once."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += raw.recv(1) or pytest.fail("the server hung up")
    length = int(re.findall(rb"content-length: (\d+)", data)[0])
    while length:
        part = raw.recv(length) or pytest.fail("the server hung up")
        data, length = data + part, length - len(part)
    (reply,) = replies(data)
    return reply


def last_reply(raw: socket.socket, *parts: bytes) -> Reply:
    """The reply to all that is sent, which must be the last of its connection."""
    send(raw, *parts)
    reply = next_reply(raw)
    assert reply.headers["connection"] == "close"
    return reply


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


def logged(logs: Sequence[MutableMapping[str, Any]], reply: Reply) -> Mapping[str, Any]:
    """The only line on a request with a reply's status, once it is there."""
    mine = {"event": "request", "status": reply.status}

    def found() -> list[MutableMapping[str, Any]]:
        return [line for line in logs if mine.items() <= line.items()]

    wait_until(lambda: bool(found()))
    (line,) = found()
    return line


def refused(url: str) -> float:
    """How many heads were too large, by the metrics."""
    line = r'^capsule_rejected_total\{reason="headers_too_large"\} (.+)$'
    found = re.search(line, httpx2.get(f"{url}/metrics").text, re.MULTILINE)
    return float(found[1]) if found else 0.0


# --- size -----------------------------------------------------------------------------------

LONG = b"x" * (4 * MAX_HEAD_BYTES)


@pytest.mark.parametrize(
    "parts",
    [
        [HEAD + b"A: " + LONG],
        [HEAD + b"A: " + LONG + b"\r\n\r\n"],
        [HEAD, *pieces(b"A: " + LONG, 10_000)],
        [HEAD + LONG],
        [HEAD + b"A: 1234\r\n" * 10_000 + b"\r\n"],
        [HEAD, *[b"A: 1234\r\n"] * 10_000, b"\r\n"],
        [HEAD + b"A:" + b" " * len(LONG)],
        [POST + b"Content-Length: 26\r\nA: " + LONG + b"\r\n\r\n" + BODY],
        [CHUNKED + b"1\r\n{\r\n0\r\nA: " + LONG],
        [CHUNKED + b"1\r\n{\r\n0\r\nA: " + LONG + b"\r\n\r\n"],
        [CHUNKED + b"1\r\n{\r\n0\r\n", *[b"A: 1234\r\n"] * 10_000, b"\r\n"],
        # More than one read of the socket takes: one that is whole at once is over and done with.
        [CHUNKED + b"1;" + b"x" * 2**20, b"\r\n{\r\n0\r\n\r\n"],
        [b"\r\n" * len(LONG)],
    ],
    ids=[
        "unfinished",
        "long",
        "in pieces",
        "a long name",
        "many",
        "many, one by one",
        "all blank",
        "before a body",
        "an unfinished trailer",
        "a long trailer",
        "many trailers",
        "a long extension of a chunk",
        "nothing but ends of lines",
    ],
)
def test_a_head_or_what_is_like_it_has_a_size(
    connect: Callable[[], socket.socket], url: str, parts: Sequence[bytes]
) -> None:
    before = refused(url)
    with capture_logs() as logs:
        with connect() as raw:
            reply = last_reply(raw, *parts)
        assert (reply.status, reply.problem["code"]) == (431, "headers_too_large")
        assert str(MAX_HEAD_BYTES) in reply.problem["detail"]
        line = logged(logs, reply)
    assert (line["status"], line["code"]) == (431, "headers_too_large")
    assert refused(url) == before + 1


def test_a_head_of_just_the_size_is_served(connect: Callable[[], socket.socket]) -> None:
    lines = b"/livezHost: x\r\nConnection: close\r\nA: \r\n"
    room = MAX_HEAD_BYTES - len(lines)
    rest_of_head = b"Connection: close\r\nA: " + b"x" * room + b"\r\n\r\n"
    assert last_reply(connect(), HEAD + rest_of_head).status == 200
    longer = rest_of_head.replace(b"A: ", b"A: x")
    assert last_reply(connect(), HEAD + longer).status == 431


def test_each_request_of_a_connection_has_the_whole_size(
    connect: Callable[[], socket.socket],
) -> None:
    raw = connect()
    padded = HEAD + b"A: " + b"x" * (MAX_HEAD_BYTES // 2) + b"\r\n"
    send(raw, *[padded + b"\r\n"] * 4, padded + b"Connection: close\r\n\r\n")
    assert [reply.status for reply in replies(rest(raw))] == [200] * 5


def test_trailers_are_not_headers(connect: Callable[[], socket.socket]) -> None:
    chunks = [b"%x\r\n%b\r\n" % (len(part), part) for part in pieces(BODY, 7)]
    end = b"0\r\nX-Request-Id: of-the-trailer\r\nContent-Type: text/plain\r\n\r\n"
    head = POST + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    reply = last_reply(connect(), head, *chunks, end)
    assert reply.status == 200
    assert json.loads(reply.body)["data"][0]["task"] == "trec"
    assert reply.headers["x-request-id"] != "of-the-trailer"


@pytest.mark.parametrize("target", [b"/v1/capsules/", b"/v1/capsules?after="])
@pytest.mark.parametrize("size", [MAX_TARGET_BYTES, 2 * MAX_HEAD_BYTES])
@pytest.mark.parametrize("piece", [1000, 1_000_000])
def test_a_target_has_a_size(
    connect: Callable[[], socket.socket], target: bytes, size: int, piece: int
) -> None:
    request = b"GET " + target + b"a" * size + b" HTTP/1.1\r\nHost: x\r\n\r\n"
    reply = last_reply(connect(), *pieces(request, piece))
    assert (reply.status, reply.problem["code"]) == (414, "uri_too_long")


def test_others_are_served_while_one_sends_without_end(
    connect: Callable[[], socket.socket], url: str
) -> None:
    started = time.perf_counter()
    flood = connect()
    send(flood, HEAD, *[b"A: " + b"x" * 1024 * 1024] * 100)
    assert httpx2.get(f"{url}/livez", timeout=PATIENCE_S).status_code == 200
    assert next_reply(flood).status == 431
    # What took minutes takes no time; the bound is for a busy machine.
    assert time.perf_counter() - started < PATIENCE_S


# --- form -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"HELLO\r\n\r\n",
        b"GET / HTTP/1.1\r\nbad header\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\n",
        POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        CHUNKED + b"no number\r\n",
    ],
)
def test_what_is_no_http_is_a_problem_as_well(
    connect: Callable[[], socket.socket], data: bytes
) -> None:
    with capture_logs() as logs:
        with connect() as raw:
            reply = last_reply(raw, data)
        assert (reply.status, reply.problem["code"]) == (400, "malformed_request")
        line = logged(logs, reply)
    assert (line["status"], line["code"]) == (400, "malformed_request")


def test_an_id_that_was_read_is_kept(connect: Callable[[], socket.socket]) -> None:
    reply = last_reply(connect(), HEAD + b"X-Request-Id: mine\r\nA: b\r\nbad header\r\n")
    assert reply.problem["request_id"] == "mine"


def test_what_was_asked_before_is_answered_first(
    connect: Callable[[], socket.socket], engine: EdgeEngine
) -> None:
    engine.gate.clear()
    raw = connect()
    send(raw, POST + b"Content-Length: 26\r\n\r\n" + BODY + b"no HTTP\r\n\r\n")
    wait_until(lambda: engine.waiting == 1)
    engine.gate.set()
    assert [next_reply(raw).status for _ in range(2)] == [200, 400]
    assert rest(raw) == b""


# --- replies in one piece -------------------------------------------------------------------

CLASSIFY = POST + b"Content-Length: 26\r\n\r\n" + BODY


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each reply that could go out in one piece: whether it did."""
    did: list[bool] = []
    original = protocol.BoundedProtocol.answer

    def answer(self: protocol.BoundedProtocol, *reply: Any) -> bool:
        did.append(original(self, *reply))
        return did[-1]

    monkeypatch.setattr(protocol.BoundedProtocol, "answer", answer)
    return did


def test_a_reply_in_one_piece_is_like_any_other(
    connect: Callable[[], socket.socket], at_once: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = connect()
    send(raw, CLASSIFY)
    one = next_reply(raw)
    send(raw, CLASSIFY)
    again = next_reply(raw)
    assert at_once == [True, True]
    monkeypatch.setattr(protocol.BoundedProtocol, "answer", lambda *reply: False)
    send(raw, CLASSIFY)
    other = next_reply(raw)
    assert one.status == again.status == other.status == 200
    assert list(one.headers) == list(again.headers) == list(other.headers)
    assert one.headers["content-type"] == "application/json"
    assert "date" in one.headers
    assert one.headers["x-request-id"] != again.headers["x-request-id"]
    answers = [json.loads(reply.body)["data"] for reply in (one, again, other)]
    assert answers[0] == answers[1] == answers[2]


def test_the_last_reply_of_a_connection_says_so(
    connect: Callable[[], socket.socket], at_once: list[bool]
) -> None:
    raw = connect()
    reply = last_reply(raw, CLASSIFY.replace(b"Host: x", b"Host: x\r\nConnection: close"))
    assert (reply.status, at_once) == (200, [False])
    assert rest(raw) == b""


def test_requests_that_come_together_are_answered_in_their_order(
    connect: Callable[[], socket.socket], at_once: list[bool]
) -> None:
    raw = connect()
    ids = [b"first", b"second", b"third"]
    send(raw, b"".join(CLASSIFY.replace(b"Host: x", b"X-Request-Id: " + one) for one in ids))
    found = [next_reply(raw) for _ in ids]
    assert [reply.headers["x-request-id"].encode() for reply in found] == ids
    assert [reply.status for reply in found] == [200, 200, 200]
    # While others wait behind it, a request is not the connection's latest.
    assert at_once == [False, False, True]


# --- number ---------------------------------------------------------------------------------

ROOM = 3


@pytest.fixture
def small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[FastAPI, Callable[[], socket.socket]]]:
    """A server for few connections, of which none is open yet."""
    monkeypatch.setattr(protocol, "SURPLUS", 2)
    monkeypatch.setattr(protocol, "SURPLUS_S", WINDOW_S)
    settings = settings_for(tmp_path, max_connections=ROOM)
    app = create_app(settings, build=with_engine(EdgeEngine()))
    with serving(app) as url, connections(url) as connect:
        yield app, connect


def connected(app: FastAPI) -> float:
    """How many connections there are, by the metrics."""
    (gauge,) = app.state.live.metrics.connections.collect()
    (sample,) = gauge.samples
    value: float = sample.value
    return value


def test_one_connection_more_than_there_may_be_is_told_so(
    small: tuple[FastAPI, Callable[[], socket.socket]],
) -> None:
    app, connect = small
    enough = [connect() for _ in range(ROOM)]
    for raw in enough:
        send(raw, HEAD + b"\r\n")
        assert next_reply(raw).status == 200
    with capture_logs() as logs:
        one_more = connect()
        reply = last_reply(one_more, CLASSIFY)
        assert (reply.status, reply.problem["code"]) == (503, "too_many_connections")
        assert reply.headers["retry-after"] == "1"
        assert logged(logs, reply)["code"] == "too_many_connections"
        one_more.shutdown(socket.SHUT_WR)
        assert rest(one_more) == b""
    # It would have been told whether the server is well.
    for path in (b"/livez", b"/readyz?full", b"/metrics"):
        assert last_reply(connect(), HEAD.replace(b"/livez", path) + b"\r\n").status == 200
    # Those that were there first are served as before.
    for raw in enough:
        send(raw, HEAD + b"\r\n")
        assert next_reply(raw).status == 200
    enough.pop().close()
    wait_until(lambda: connected(app) == len(enough))
    raw = connect()
    send(raw, HEAD + b"\r\n")
    assert next_reply(raw).status == 200


def test_one_connection_more_that_asks_for_nothing_is_closed(
    small: tuple[FastAPI, Callable[[], socket.socket]],
) -> None:
    _, connect = small
    enough = [connect() for _ in range(ROOM)]
    assert rest(connect()) == b""
    for raw in enough:
        send(raw, HEAD + b"\r\n")
        assert next_reply(raw).status == 200


def test_far_too_many_connections_are_cut_off(
    small: tuple[FastAPI, Callable[[], socket.socket]], monkeypatch: pytest.MonkeyPatch
) -> None:
    app, connect = small
    monkeypatch.setattr(protocol, "SURPLUS_S", PATIENCE_S)
    # Those that are told are there for longer than it takes to have the next one cut off.
    held = [connect() for _ in range(ROOM + protocol.SURPLUS)]
    wait_until(lambda: connected(app) == len(held))
    assert rest(connect()) == b""
    (cut,) = app.state.live.metrics.cut.collect()[0].samples[:1]
    assert (cut.name, cut.value) == ("capsule_connections_cut_total", 1)


# --- coding ---------------------------------------------------------------------------------

CHUNKS = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)


@pytest.mark.parametrize(
    "lines",
    [
        b"Transfer-Encoding: gzip, chunked\r\n",
        b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
        b"transfer-encoding: identity, Chunked\r\n",
    ],
)
def test_a_transfer_coding_that_is_not_undone_is_refused(
    connect: Callable[[], socket.socket], lines: bytes
) -> None:
    reply = last_reply(connect(), POST + lines + b"\r\n" + CHUNKS)
    assert (reply.status, reply.problem["code"]) == (501, "unknown_transfer_coding")
    assert reply.problem["errors"][0]["field"] == "Transfer-Encoding"


@pytest.mark.parametrize("name", [b"chunked", b"Chunked", b"chunked "])
def test_chunks_are_read_however_they_are_spelt(
    connect: Callable[[], socket.socket], name: bytes
) -> None:
    lines = b"Connection: close\r\nTransfer-Encoding: %b\r\n\r\n" % name
    assert last_reply(connect(), POST + lines + CHUNKS).status == 200


# --- pace -----------------------------------------------------------------------------------


def trickle(raw: socket.socket, part: bytes) -> None:
    """Send something again and again until the server has had enough and says something."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        send(raw, part)
        readable, _, _ = select.select([raw], [], [], WINDOW_S / 8)
        if readable:
            return
    raise AssertionError("the server let it go on")


@pytest.mark.parametrize(
    ("begin", "part"),
    [
        (HEAD, b"A: b\r\n"),
        (b"G", b""),
        (POST + b"Content-Length: 100000\r\n\r\n", b" "),
        (CHUNKED, b"1\r\n \r\n"),
        (CHUNKED + b"1\r\n{\r\n0\r\n", b"A: b\r\n"),
    ],
    ids=["head", "silence", "body", "chunks", "trailers"],
)
def test_a_request_that_comes_too_slowly(
    connect: Callable[[], socket.socket], brief: None, begin: bytes, part: bytes
) -> None:
    raw = connect()
    send(raw, begin)
    trickle(raw, part)
    reply = next_reply(raw)
    assert (reply.status, reply.problem["code"]) == (408, "request_timeout")
    assert reply.headers["connection"] == "close"


def test_a_body_that_comes_steadily_may_take_its_time(
    connect: Callable[[], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "WINDOW_S", STEADY_S)
    monkeypatch.setattr(protocol, "WINDOW_BYTES", 5)
    raw = connect()
    started = time.monotonic()
    send(raw, POST + b"Connection: close\r\nContent-Length: 326\r\n\r\n" + b" " * 10)
    for part in pieces(b" " * 290 + BODY, 10):
        time.sleep(STEADY_S / 12)
        send(raw, part)
    assert time.monotonic() - started > 2 * STEADY_S
    (reply,) = replies(rest(raw))
    assert reply.status == 200


def test_a_slow_application_is_not_held_against_the_client(
    connect: Callable[[], socket.socket], brief: None, engine: EdgeEngine
) -> None:
    engine.gate.clear()
    raw = connect()
    # While the first is not answered, nothing of the second is read.
    second = POST + b"Connection: close\r\nContent-Length: 26\r\n\r\n"
    send(raw, SLOW + second)
    time.sleep(2 * WINDOW_S)
    engine.gate.set()
    send(raw, BODY)
    assert [reply.status for reply in replies(rest(raw))] == [200, 200]


def test_a_body_that_nobody_waits_for_any_more_ends_as_well(
    connect: Callable[[], socket.socket], brief: None
) -> None:
    raw = connect()
    send(raw, b"POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
    assert next_reply(raw).status == 404
    trickle(raw, b"x")
    assert rest(raw) == b""


@pytest.mark.parametrize("padding", [0, 300_000])
def test_work_for_a_client_that_leaves_is_cancelled(
    connect: Callable[[], socket.socket], engine: EdgeEngine, padding: int
) -> None:
    engine.gate.clear()
    before = engine.cancelled, engine.waiting
    body = BODY + b" " * padding
    with connect() as raw:
        raw.sendall(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        wait_until(lambda: engine.waiting == before[1] + 1)
        assert engine.cancelled == before[0]
    wait_until(lambda: engine.cancelled == before[0] + 1)
    assert engine.waiting == before[1]


@pytest.mark.parametrize("begin", [b"", HEAD + b"\r\n", b"\r\n"])
def test_a_connection_that_is_not_used_is_closed(
    own: FastAPI, monkeypatch: pytest.MonkeyPatch, begin: bytes
) -> None:
    monkeypatch.setattr("service.server.KEEP_ALIVE_S", WINDOW_S)
    with serving(own) as url:
        place = httpx2.URL(url)
        with socket.create_connection((place.host, place.port or 0), PATIENCE_S) as raw:
            send(raw, begin)
            statuses = [reply.status for reply in replies(rest(raw))]
    assert statuses == ([200] if b"GET" in begin else [])


def test_a_reply_that_is_not_taken_is_dropped(
    connect: Callable[[], socket.socket], brief: None, url: str
) -> None:
    raw = connect()
    with capture_logs() as logs:
        send(raw, b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_until(lambda: any(line["event"] == "reply_not_taken" for line in logs))
    assert len(rest(raw)) < BIG
    assert httpx2.get(f"{url}/livez").status_code == 200


def test_a_reply_that_is_taken_slowly_arrives(
    connect: Callable[[], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "WINDOW_S", STEADY_S)
    raw = connect()
    send(raw, b"GET /big HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    size, started = 0, time.monotonic()
    while data := raw.recv(1024 * 1024):
        size += len(data)
        time.sleep(STEADY_S / 24)
    assert size > BIG
    assert time.monotonic() - started > 2 * STEADY_S


# --- the end --------------------------------------------------------------------------------


def test_what_comes_while_the_server_goes_is_answered(own: FastAPI) -> None:
    with serving(own) as url:
        place = httpx2.URL(url)
        address = (place.host, place.port or 0)
        with (
            socket.create_connection(address, PATIENCE_S) as used,
            socket.create_connection(address, PATIENCE_S) as fresh,
        ):
            send(used, HEAD + b"\r\n")
            assert next_reply(used).status == 200
            own.state.live.drain()
            send(used, POST + b"Content-Length: 26\r\n\r\n" + BODY)
            send(fresh, POST + b"Content-Length: 26\r\n\r\n" + BODY)
            for raw in (used, fresh):
                (reply,) = replies(rest(raw))
                assert (reply.status, reply.problem["code"]) == (503, "draining")
                assert reply.headers["connection"] == "close"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems reset those who wait")
def test_nobody_is_reset_when_the_server_goes(own: FastAPI) -> None:
    """Whoever gets a connection gets an answer; then connections are refused."""
    statuses: list[int] = []

    def ask(address: tuple[str, int]) -> None:
        while True:
            try:
                raw = socket.create_connection(address, PATIENCE_S)
            except ConnectionRefusedError:
                return
            with raw:
                statuses.append(last_reply(raw, HEAD + b"Connection: close\r\n\r\n").status)

    with ThreadPoolExecutor(8) as pool:
        with serving(own) as url:
            place = httpx2.URL(url)
            askers = [pool.submit(ask, (place.host, place.port or 0)) for _ in range(8)]
            wait_until(lambda: len(statuses) > 50)
        for asker in askers:
            asker.result(PATIENCE_S)
    assert set(statuses) == {200}


UPGRADE = (
    b"Connection: keep-alive, Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n"
)


@pytest.mark.parametrize("size", [1, 10, 10_000])
def test_a_request_that_offers_another_protocol_is_answered_in_this_one(
    connect: Callable[[], socket.socket], size: int
) -> None:
    request = POST + UPGRADE + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
    after = HEAD + b"X-Request-Id: after\r\nConnection: close\r\n\r\n"
    raw = connect()
    for part in pieces(request + after, size):
        send(raw, part)
    first, second = replies(rest(raw))
    assert (first.status, json.loads(first.body)["data"][0]["task"]) == (200, "trec")
    assert (second.status, second.headers["x-request-id"]) == (200, "after")


def test_the_body_of_such_a_request_is_not_taken_for_a_request(
    connect: Callable[[], socket.socket],
) -> None:
    smuggled = HEAD + b"X-Request-Id: smuggled\r\n\r\n"
    raw = connect()
    send(raw, POST + UPGRADE + b"Content-Length: %d\r\n\r\n" % len(smuggled))
    send(raw, smuggled)
    reply = next_reply(raw)
    assert (reply.status, reply.problem["code"]) == (400, "invalid_json")
    send(raw, HEAD + b"X-Request-Id: honest\r\nConnection: close\r\n\r\n")
    (last,) = replies(rest(raw))
    assert last.headers["x-request-id"] == "honest"


def test_a_tunnel_is_refused(connect: Callable[[], socket.socket]) -> None:
    raw = connect()
    send(raw, b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n")
    (reply,) = replies(rest(raw))
    assert (reply.status, reply.problem["code"]) == (400, "malformed_request")


def test_requests_ahead_of_their_turn_are_held_back(
    connect: Callable[[], socket.socket], engine: EdgeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = []
    complete = BoundedProtocol.on_headers_complete

    def counted(self: BoundedProtocol) -> None:
        begun.append(self)
        complete(self)

    monkeypatch.setattr(BoundedProtocol, "on_headers_complete", counted)
    engine.gate.clear()
    raw = connect()
    many = 6000
    one = HEAD + b"\r\n"
    last = HEAD + b"X-Request-Id: last\r\nConnection: close\r\n\r\n"
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send, raw, SLOW, one * many, last)
        wait_until(lambda: len(begun) > 1)
        wait_until(lambda: begun[0].flow.read_paused)
        assert len(begun) <= 1 + PART_BYTES // len(one) + 1
        assert len(begun[0].ahead) < AHEAD_BYTES + 512 * 1024
        engine.gate.set()
        found = replies(rest(raw))
        sending.result(PATIENCE_S)
    assert [reply.status for reply in found] == [200] * (many + 2)
    assert found[-1].headers["x-request-id"] == "last"
    assert len(begun) == many + 2


def test_work_is_cancelled_when_a_client_leaves_that_had_asked_for_more(
    connect: Callable[[], socket.socket], engine: EdgeEngine
) -> None:
    before = engine.cancelled, engine.waiting
    engine.gate.clear()
    with capture_logs() as logs:
        raw = connect()
        request = POST + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
        send(raw, request + HEAD + b"\r\n" + request)
        wait_until(lambda: engine.waiting == before[1] + 1)
        raw.close()
        wait_until(lambda: engine.cancelled == before[0] + 1)
        wait_until(lambda: any(line["event"] == "request" for line in logs))
    assert [line["status"] for line in logs if line["event"] == "request"] == [CLIENT_GONE]
    assert not [line for line in logs if line["event"] == "unexpected_error"]


def test_a_request_that_waits_for_its_turn_is_not_slow(
    connect: Callable[[], socket.socket], engine: EdgeEngine, brief: None
) -> None:
    engine.gate.clear()
    raw = connect()
    body = json.dumps({"task": "trec", "text": "a" * 3 * PART_BYTES}).encode()
    send(raw, SLOW)
    send(raw, POST + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    time.sleep(2.5 * WINDOW_S)
    engine.gate.set()
    assert [reply.status for reply in replies(rest(raw))] == [200, 200]


def test_a_client_that_leaves_before_its_refusal_is_no_error(
    connect: Callable[[], socket.socket], url: str
) -> None:
    with capture_logs() as logs:
        raw = connect()
        send(raw, b"\x16\x03\x01\x02\x00\x01\x00")
        assert next_reply(raw).status == 400
        raw.close()
        wait_until(lambda: any(line["event"] == "request" for line in logs))
    assert {line["event"] for line in logs} == {"request"}


def test_the_limits_are_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    (limits,) = re.findall(r"^## Limits\n(.*?)^## ", text, re.MULTILINE | re.DOTALL)
    for limit in (
        f"{MAX_TARGET_BYTES // 1024} KiB",
        f"{MAX_HEAD_BYTES // 1024} KiB",
        f"{protocol.WINDOW_S:g} s",
        f"{protocol.WINDOW_BYTES // 1024} KiB",
    ):
        assert limit in limits
