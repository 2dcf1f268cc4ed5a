"""A client that does as little as one can for a request: write bytes, look for the reply's end.

It is driven by the parser's calls alone, without a task or a future a request, so that it keeps
ahead of any server that it is pointed at.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence

import httptools

from benchmarks.errors import BenchmarkError
from benchmarks.load.records import Job, Load

OK = 200


class Sending:
    """The requests of one job, and what came of them.

    Attributes:
        requests: as they go over the wire.
        todo: positions of those that are still to be sent.
        latencies: milliseconds of each.
        sample: the body of the first one's reply.
    """

    def __init__(self, requests: Sequence[bytes]) -> None:
        self.requests = requests
        self.todo: Iterator[int] = iter(range(len(requests)))
        self.latencies = [0.0] * len(requests)
        self.sample = b""


class Connection(asyncio.Protocol):
    """A connection that is kept, with one request at a time: the next one that is to be sent.

    Attributes:
        over: done once there are no more, or the exception that ended it.
    """

    transport: asyncio.Transport

    def __init__(self, sending: Sending) -> None:
        self.sending = sending
        self.parser = httptools.HttpResponseParser(self)
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.index = 0
        self.started = 0.0
        self.body: list[bytes] = []

    async def work(self) -> None:
        """Send requests until there are no more.

        Raises:
            BenchmarkError: a reply was not 200.
            ConnectionError: the server closed the connection first.
        """
        self.send()
        await self.over

    def send(self) -> None:
        """Send the next request, if there is one."""
        index = next(self.sending.todo, None)
        if index is None:
            self.over.set_result(None)
            return
        self.index = index
        self.body.clear()
        self.started = time.perf_counter()
        self.transport.write(self.sending.requests[index])

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.over.done():
            self.over.set_exception(exc or ConnectionResetError("the server hung up"))

    def on_body(self, body: bytes) -> None:
        """A part of the reply's body; the parser calls this."""
        self.body.append(body)

    def on_message_complete(self) -> None:
        """The end of the reply; the parser calls this."""
        self.sending.latencies[self.index] = (time.perf_counter() - self.started) * 1000
        if self.over.done():
            return
        status = self.parser.get_status_code()
        if status != OK:
            body = b"".join(self.body).decode()
            self.over.set_exception(BenchmarkError(f"A request got {status}: {body}"))
            return
        if self.index == 0:
            self.sending.sample = b"".join(self.body)
        self.send()


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
    sending = Sending([message(job, body) for body in job.bodies])
    connections = [
        (await loop.create_connection(lambda: Connection(sending), job.host, job.port))[1]
        for _ in range(min(job.concurrency, len(sending.requests)))
    ]
    cpu, started = time.process_time(), time.perf_counter()
    try:
        async with asyncio.TaskGroup() as group:
            for connection in connections:
                group.create_task(connection.work())
    finally:
        ended, cpu_ended = time.perf_counter(), time.process_time()
        for connection in connections:
            connection.transport.close()
    return Load(
        seconds=ended - started,
        latencies_ms=tuple(sending.latencies),
        cpu_seconds=cpu_ended - cpu,
        sample=sending.sample.decode(),
    )
