"""Keeps a server busy for a while, and uploads capsules to it at a steady rate."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from itertools import count

import httptools

from benchmarks.swaps.records import Reply, Traffic, Window

UPLOADERS = 16
"""Connections for uploads, so that the rate is kept where one takes long."""

CLASSIFY = "/v1/classify"
UPLOAD = "/v1/capsules"


class Connection(asyncio.Protocol):
    """A connection that is kept, with one request at a time."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.reply: asyncio.Future[int] | None = None
        self.body: list[bytes] = []

    async def ask(self, number: int, data: bytes) -> Reply:
        """Send a request and wait for its reply, or for the end of the connection."""
        self.reply = asyncio.get_running_loop().create_future()
        self.body.clear()
        started = time.perf_counter()
        self.transport.write(data)
        try:
            status = await self.reply
        except ConnectionError as error:
            status, self.body = 0, [str(error).encode()]
        return Reply(
            request=number,
            status=status,
            ms=(time.perf_counter() - started) * 1000,
            body=b"".join(self.body).decode(),
        )

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.reply is not None and not self.reply.done():
            self.reply.set_exception(ConnectionResetError(f"the server hung up: {exc}"))

    def on_body(self, body: bytes) -> None:
        """A part of the reply's body; the parser calls this."""
        self.body.append(body)

    def on_message_complete(self) -> None:
        """The end of the reply; the parser calls this."""
        if self.reply is not None and not self.reply.done():
            self.reply.set_result(self.parser.get_status_code())


async def traffic(window: Window, contents: Sequence[bytes]) -> Traffic:
    """Send what a window asks for.

    Args:
        window: what it asks for.
        contents: of the files that are to be uploaded.

    Raises:
        OSError: the server cannot be reached.
    """
    loop = asyncio.get_running_loop()
    classifications = [
        message(window, CLASSIFY, "application/json", body.encode()) for body in window.bodies
    ]
    files = [message(window, UPLOAD, "application/octet-stream", content) for content in contents]

    async def connected() -> Connection:
        return (await loop.create_connection(Connection, window.host, window.port))[1]

    askers = [await connected() for _ in range(window.concurrency)]
    uploaders = [await connected() for _ in range(min(UPLOADERS, len(files)))]
    replies: list[Reply] = []
    uploads: list[Reply] = []
    numbers, turns = count(), iter(range(len(files)))
    started = time.perf_counter()
    try:
        async with asyncio.TaskGroup() as group:
            for one in askers:
                group.create_task(ask(one, classifications, numbers, window, started, replies))
            for one in uploaders:
                group.create_task(upload(one, files, turns, window, started, uploads))
    finally:
        for one in (*askers, *uploaders):
            one.transport.close()
    return Traffic(
        seconds=max(window.seconds, time.perf_counter() - started),
        replies=tuple(replies),
        uploads=tuple(uploads),
    )


async def ask(
    connection: Connection,
    requests: list[bytes],
    numbers: Iterator[int],
    window: Window,
    started: float,
    replies: list[Reply],
) -> None:
    """Send classifications one after the other until the window is over, or the server hangs up."""
    while time.perf_counter() - started < window.seconds:
        number = next(numbers) % len(requests)
        replies.append(await connection.ask(number, requests[number]))
        if not replies[-1].status:
            return


async def upload(
    connection: Connection,
    files: list[bytes],
    turns: Iterator[int],
    window: Window,
    started: float,
    uploads: list[Reply],
) -> None:
    """Send files, each when it is its turn, until there are no more, or the server hangs up."""
    for number in turns:
        await asyncio.sleep(started + number / window.rate - time.perf_counter())
        uploads.append(await connection.ask(number, files[number]))
        if not uploads[-1].status:
            return


def message(window: Window, path: str, media_type: str, data: bytes) -> bytes:
    """A request as it goes over the wire."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {window.host}:{window.port}\r\n"
        f"Content-Type: {media_type}\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data
