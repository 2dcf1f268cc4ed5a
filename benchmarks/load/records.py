"""What the two processes tell each other, a line of JSON at a time."""

from benchmarks.record import Record


class Job(Record):
    """Requests to send.

    Attributes:
        host: of the server.
        port: of the server.
        path: that every request is posted to.
        bodies: of the requests, JSON.
        concurrency: how many are under way at a time.
    """

    host: str
    port: int
    path: str
    bodies: tuple[str, ...]
    concurrency: int


class Load(Record):
    """What came of a job.

    Attributes:
        seconds: from the first request to the last reply.
        latencies_ms: of each request, in the order of the bodies.
        cpu_seconds: that the client itself took; where it nears `seconds`, it is the limit.
        sample: the reply to the first body.
    """

    seconds: float
    latencies_ms: tuple[float, ...]
    cpu_seconds: float
    sample: str
