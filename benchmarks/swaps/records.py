"""What the two processes tell each other, a line of JSON at a time."""

from benchmarks.record import Record


class Window(Record):
    """A stretch of time in which a server is kept busy.

    Attributes:
        host: of the server.
        port: of the server.
        seconds: how long new requests are sent.
        bodies: of the classifications, JSON; sent over and over, in their order.
        concurrency: how many of them are under way at a time.
        uploads: files of capsules to upload meanwhile.
        rate: how many of these a second.
    """

    host: str
    port: int
    seconds: float
    bodies: tuple[str, ...]
    concurrency: int
    uploads: tuple[str, ...] = ()
    rate: float = 1.0


class Reply(Record):
    """What came of one request.

    Attributes:
        request: position of what was sent.
        status: of the reply; 0 where there was none.
        ms: from the first byte sent to the last one received.
        body: of the reply, or why there was none.
    """

    request: int
    status: int
    ms: float
    body: str


class Traffic(Record):
    """What came of a window.

    Attributes:
        seconds: from the first request to the last reply to a classification.
        replies: to classifications.
        uploads: replies to these.
    """

    seconds: float
    replies: tuple[Reply, ...]
    uploads: tuple[Reply, ...]
