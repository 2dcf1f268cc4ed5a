import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from benchmarks.errors import BenchmarkError
from benchmarks.load.client import drive
from benchmarks.load.process import load_process
from benchmarks.load.records import Job

HOST = "127.0.0.1"


class Echo:
    """Replies with the request's body, in two pieces; counts who is there at a time."""

    def __init__(self, status="200 OK"):
        self.status = status
        self.bodies = []
        self.connections = 0
        self.here = 0
        self.most = 0

    async def serve(self, reader, writer):
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = dict(line.lower().split(b": ") for line in head.split(b"\r\n")[1:] if line)
                body = await reader.readexactly(int(lines[b"content-length"]))
                await self.reply(writer, body)
        except asyncio.IncompleteReadError:
            pass  # the client is done
        finally:
            writer.close()

    async def reply(self, writer, body):
        self.bodies.append(body.decode())
        self.here += 1
        self.most = max(self.most, self.here)
        await asyncio.sleep(0.005)
        self.here -= 1
        head = f"HTTP/1.1 {self.status}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        writer.write(head + body[:3])
        await asyncio.sleep(0.001)
        writer.write(body[3:])

    @asynccontextmanager
    async def listening(self):
        server = await asyncio.start_server(self.serve, HOST, 0)
        async with server:
            yield server.sockets[0].getsockname()[1]


def job(port, count, concurrency):
    bodies = tuple(json.dumps({"text": f"text {n} é"}) for n in range(count))
    return Job(host=HOST, port=port, path="/", bodies=bodies, concurrency=concurrency)


async def test_every_request_is_sent_once_and_timed():
    echo = Echo()
    async with echo.listening() as port:
        wanted = job(port, 10, 3)
        load = await drive(wanted)
    assert sorted(echo.bodies) == sorted(wanted.bodies)
    assert load.sample == wanted.bodies[0]
    assert len(load.latencies_ms) == 10
    assert min(load.latencies_ms) >= 5
    assert load.seconds * 1000 >= max(load.latencies_ms)
    assert load.cpu_seconds >= 0


async def test_connections_are_kept_and_no_more_than_the_callers():
    echo = Echo()
    async with echo.listening() as port:
        await drive(job(port, 12, 4))
    assert echo.connections == 4
    assert echo.most == 4


async def test_fewer_requests_than_callers_need_fewer_connections():
    echo = Echo()
    async with echo.listening() as port:
        await drive(job(port, 2, 8))
    assert echo.connections == 2


async def test_reply_that_is_no_success_ends_the_job():
    async with Echo("503 Service Unavailable").listening() as port:
        with pytest.raises(ExceptionGroup) as caught:
            await drive(job(port, 4, 1))
    assert caught.group_contains(BenchmarkError, match="got 503")


async def test_server_that_hangs_up_ends_the_job():
    async def hang_up(_, writer):
        writer.close()

    server = await asyncio.start_server(hang_up, HOST, 0)
    async with server:
        with pytest.raises(ExceptionGroup) as caught:
            await drive(job(server.sockets[0].getsockname()[1], 1, 1))
    assert caught.group_contains(ConnectionError)


async def test_process_does_one_job_after_another_and_survives_failures():
    async with Echo().listening() as port, Echo("500 Oh").listening() as broken:

        def work():
            with load_process() as process:
                first = process.send(job(port, 3, 1))
                with pytest.raises(BenchmarkError, match="got 500"):
                    process.send(job(broken, 3, 1))
                return first, process.send(job(port, 2, 2))

        first, last = await asyncio.to_thread(work)
    assert (len(first.latencies_ms), len(last.latencies_ms)) == (3, 2)
