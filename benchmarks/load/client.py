"""A client that does as little as one can for a request: write bytes, wait for the reply's end."""

import asyncio
import time
from asyncio import Future
from collections.abc import Iterator, Sequence

import httptools

from benchmarks.errors import BenchmarkError
from benchmarks.load.records import Job, Load

OK = 200


class Connection(asyncio.Protocol):
    """A connection that is kept, with one request at a time."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.reply: Future[tuple[int, bytes]] | None = None
        self.body = b""

    async def request(self, data: bytes) -> tuple[int, bytes]:
        """Send a request and wait for the status and body of its reply.

        Raises:
            ConnectionError: the server closed the connection first.
        """
        assert self.reply is None, "one request at a time"
        self.reply = asyncio.get_running_loop().create_future()
        self.body = b""
        self.transport.write(data)
        try:
            return await self.reply
        finally:
            self.reply = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport), "a stream"
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.reply is not None and not self.reply.done():
            self.reply.set_exception(exc or ConnectionResetError("the server hung up"))

    def on_body(self, body: bytes) -> None:
        """A part of the reply's body; the parser calls this."""
        self.body += body

    def on_message_complete(self) -> None:
        """The end of the reply; the parser calls this."""
        if self.reply is not None and not self.reply.done():
            self.reply.set_result((self.parser.get_status_code(), self.body))


def message(job: Job, body: str) -> bytes:
    """A request as it goes over the wire."""
    data = body.encode()
    head = (
        f"POST {job.path} HTTP/1.1\r\nHost: {job.host}:{job.port}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


async def drive(job: Job) -> Load:
    """Send a job's requests, each connection its next one once it has a reply.

    Raises:
        BenchmarkError: a reply was not 200.
        OSError: the server cannot be reached, or hung up.
    """
    loop = asyncio.get_running_loop()
    requests = [message(job, body) for body in job.bodies]
    connections = [
        (await loop.create_connection(Connection, job.host, job.port))[1]
        for _ in range(min(job.concurrency, len(requests)))
    ]
    latencies = [0.0] * len(requests)
    replies = [b""] * len(requests)
    todo = iter(range(len(requests)))
    cpu, started = time.process_time(), time.perf_counter()
    try:
        async with asyncio.TaskGroup() as group:
            for connection in connections:
                group.create_task(work(connection, todo, requests, latencies, replies))
    finally:
        for connection in connections:
            connection.transport.close()
    return Load(
        seconds=time.perf_counter() - started,
        latencies_ms=tuple(latencies),
        cpu_seconds=time.process_time() - cpu,
        sample=replies[0].decode(),
    )


async def work(
    connection: Connection,
    todo: Iterator[int],
    requests: Sequence[bytes],
    latencies: list[float],
    replies: list[bytes],
) -> None:
    """Send requests over one connection until there are no more.

    Raises:
        BenchmarkError: a reply was not 200.
    """
    for index in todo:
        started = time.perf_counter()
        status, replies[index] = await connection.request(requests[index])
        latencies[index] = (time.perf_counter() - started) * 1000
        if status != OK:
            raise BenchmarkError(f"A request got {status}: {replies[index].decode()}")
