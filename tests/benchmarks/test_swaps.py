import asyncio
import sys
from dataclasses import replace

from benchmarks.server import running_server
from benchmarks.swaps.client import traffic
from benchmarks.swaps.process import traffic_process
from benchmarks.swaps.records import Window


class Answering(asyncio.Protocol):
    """Answers each request with its own body, but hangs up on one that says so."""

    def __init__(self, seen):
        self.seen = seen
        self.data = b""

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.data += data
        head, end, body = self.data.partition(b"\r\n\r\n")
        if not end or len(body) < int(head.lower().split(b"content-length: ")[1].split()[0]):
            return
        self.data = b""
        self.seen.append((head.split(b" ", 2)[1].decode(), body))
        if body == b"hang up":
            self.transport.close()
            return
        status = b"503 Busy" if body == b"busy" else b"200 OK"
        self.transport.write(
            b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body
        )


async def sent(bodies, contents=(), **changes):
    """What a server saw and what came of a window."""
    seen: list[tuple[str, bytes]] = []
    loop = asyncio.get_running_loop()
    async with await loop.create_server(lambda: Answering(seen), "127.0.0.1", 0) as listening:
        window = Window(
            host="127.0.0.1",
            port=listening.sockets[0].getsockname()[1],
            **{"seconds": 0.1, "bodies": bodies, "concurrency": 2, "rate": 100.0} | changes,
        )
        return seen, await traffic(window, contents)


async def test_requests_are_sent_over_and_over_and_uploads_once():
    seen, found = await sent(("a", "bb"), (b"one", b"two", b"three"))
    uploads = [body for path, body in seen if path == "/v1/capsules"]
    assert sorted(uploads) == [b"one", b"three", b"two"]
    assert sorted((reply.request, reply.status, reply.body) for reply in found.uploads) == [
        (0, 200, "one"),
        (1, 200, "two"),
        (2, 200, "three"),
    ]
    assert {(reply.request, reply.body) for reply in found.replies} == {(0, "a"), (1, "bb")}
    assert len(found.replies) == sum(path == "/v1/classify" for path, _ in seen) > 2
    assert found.seconds >= 0.1


async def test_refusals_are_told_and_the_window_goes_on():
    _, found = await sent(("busy", "fine"))
    assert {reply.status for reply in found.replies} == {200, 503}


async def test_a_server_that_hangs_up_is_told():
    _, found = await sent(("hang up",), (b"hang up",))
    assert [reply.status for reply in found.replies] == [0, 0]
    assert [reply.status for reply in found.uploads] == [0]
    assert all("hung up" in reply.body for reply in (*found.replies, *found.uploads))


def test_a_process_of_its_own_sends_it(context, tmp_path):
    fake = replace(context, serve=(sys.executable, "-m", "tests.support.fake_server"))
    path = tmp_path / "file"
    path.write_bytes(b"capsule")
    with running_server(fake, tmp_path / "data", {}) as server, traffic_process() as process:
        window = Window(
            host="127.0.0.1",
            port=server.port,
            seconds=0.1,
            bodies=('{"task": "a", "text": "x"}',),
            concurrency=2,
            uploads=(str(path), str(path)),
            rate=50.0,
        )
        found = process.send(window)
        assert {(reply.status, reply.body) for reply in found.replies} == {
            (200, '{"data": [{"task": "a"}]}')
        }
        assert [reply.status for reply in found.uploads] == [201, 201]
        assert process.send(window).replies
