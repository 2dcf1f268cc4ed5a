from collections.abc import Callable, Iterable

import httpx2
import pytest

from service.cli.client import ServerError
from service.cli.jobs.following import LONGEST_PAUSE_S, Follower
from service.cli.jobs.replies import Event, Progress
from tests.support.job_replies import (
    JOB,
    URL,
    Clock,
    a_job,
    a_problem,
    a_stream,
    events,
    jobs_of,
    message,
)

RUNNING = httpx2.Response(200, json=a_job())
ENDED = httpx2.Response(200, json=a_job(status="succeeded"))
SILENCE_S = 10.0
WHERE = {"epoch": 2, "epochs": 20, "step": 3, "steps": 9, "loss": 0.5, "seconds_left": 12.5}

Answer = httpx2.Response | Exception | Callable[[httpx2.Request], httpx2.Response]


class Server:
    """Answers as it is told, streams and questions about the job each in their order.

    Attributes:
        resumed: the `Last-Event-ID` of every connection.
        told: what the follower said.
    """

    def __init__(self, streams: Iterable[Answer], jobs: Iterable[Answer] = ()) -> None:
        self.clock = Clock()
        self.streams = iter(streams)
        self.jobs = iter(jobs)
        self.resumed: list[str | None] = []
        self.told: list[str] = []

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        if request.url.path.endswith("/events"):
            assert str(request.url) == f"{URL}/v1/admin/training/jobs/{JOB}/events"
            assert request.headers["accept"] == "text/event-stream"
            self.resumed.append(request.headers.get("last-event-id"))
            found = next(self.streams)
        else:
            found = next(self.jobs)
        if isinstance(found, Exception):
            raise found
        return found if isinstance(found, httpx2.Response) else found(request)

    def follow(self) -> list[Event | Progress]:
        jobs = jobs_of(self.answer, self.clock)
        return list(Follower(jobs, JOB, silence=SILENCE_S, tell=self.told.append))

    def numbers(self) -> list[int]:
        return [one.number for one in self.follow() if isinstance(one, Event)]


def test_events_come_until_the_job_has_ended():
    server = Server([a_stream(events(1, 2)), a_stream()], [ENDED])
    first, second = server.follow()
    assert isinstance(first, Event)
    assert (first.number, first.message, first.level) == (1, "Event 1.", "info")
    assert isinstance(second, Event)
    assert server.resumed == [None, "2"]
    assert (server.told, server.clock.slept) == ([], [])


def test_the_server_says_when_it_is_over():
    server = Server([a_stream(b"retry: 2000\n\n", events(1, 2), message("done", {"id": JOB}))])
    assert server.numbers() == [1, 2]
    assert (server.resumed, server.clock.slept) == ([None], [])


def test_what_happens_after_the_stream_has_ended_is_not_missed():
    """As where the server stops in the same moment in which the job ends."""
    server = Server([a_stream(events(1)), a_stream(events(2, 3))], [ENDED])
    assert server.numbers() == [1, 2, 3]


def test_progress_comes_between_events():
    stream = a_stream(events(1), message("progress", WHERE), b": still here\r\n\r\n", events(2))
    server = Server([stream, a_stream()], [ENDED])
    first, second, third = server.follow()
    assert isinstance(second, Progress)
    assert (second.epoch, second.steps, second.loss, second.seconds_left) == (2, 9, 0.5, 12.5)
    assert isinstance(first, Event)
    assert isinstance(third, Event)


@pytest.mark.parametrize(
    "loss",
    [
        httpx2.ReadError("reset by peer"),
        httpx2.RemoteProtocolError("incomplete chunked read"),
        httpx2.ReadTimeout("timed out"),
    ],
)
def test_a_lost_connection_goes_on_after_the_last_event(loss):
    cut = events(3)[:-5]
    server = Server(
        [a_stream(events(1, 2), cut, loss), a_stream(events(3, 4)), a_stream()], [ENDED]
    )
    assert server.numbers() == [1, 2, 3, 4]
    assert server.resumed == [None, "2", "4"]
    assert server.clock.slept == [0.5]
    (told,) = server.told
    assert "Connecting again." in told
    assert URL in told


def test_no_event_comes_twice():
    streams = [a_stream(events(1, 2), httpx2.ReadError("")), a_stream(events(1, 2, 3)), a_stream()]
    assert Server(streams, [ENDED]).numbers() == [1, 2, 3]


def test_a_server_that_is_started_again_is_waited_for():
    away = httpx2.ConnectError("Connection refused")
    streams: list[Answer] = [
        a_stream(events(1), httpx2.ReadError("")),
        away,
        a_problem(503, "warming", **{"Retry-After": "1"}),
        httpx2.Response(502, text="<html>Bad gateway</html>"),
        a_stream(events(2)),
        away,
        a_stream(),
    ]
    server = Server(streams, [ENDED])
    assert server.numbers() == [1, 2]
    # Longer each time, and from the beginning once there was a connection.
    assert server.clock.slept == [0.5, 1.0, 2.0, 4.0, 0.5]
    # Said once a loss, not once an attempt.
    assert len(server.told) == 2


def test_a_server_that_says_it_is_warming_up_is_not_silent():
    warming = [a_problem(503, "warming", **{"Retry-After": "1"}) for _ in range(10)]
    lost = a_stream(events(1), httpx2.ReadError(""))
    server = Server([lost, *warming, a_stream(events(2)), a_stream()], [ENDED])
    began = server.clock.now
    assert server.numbers() == [1, 2]
    assert server.clock.now - began > SILENCE_S
    assert max(server.clock.slept) == LONGEST_PAUSE_S


def test_a_server_that_stays_away_is_given_up_on_in_time():
    away = httpx2.ConnectError("Connection refused")
    server = Server([a_stream(events(1), httpx2.ReadError("")), *[away] * 10])
    began = server.clock.now
    with pytest.raises(ServerError, match=r"watch it again .* or raise --timeout") as caught:
        server.follow()
    assert caught.value.code == "server_timeout"
    assert server.clock.now - began <= SILENCE_S


def test_a_job_that_waits_for_long_does_not_use_up_the_patience():
    """Its stream brings only comments for an hour, of which nothing is heard but that it lives."""
    server = Server([])

    def wait_and_break(_: httpx2.Request) -> httpx2.Response:
        server.clock.now += 3600
        return a_stream(httpx2.ReadError("reset by peer"))

    server.streams = iter([wait_and_break, a_stream(events(1)), a_stream()])
    server.jobs = iter([ENDED])
    assert server.numbers() == [1]


def test_silence_on_a_connection_counts():
    """A read that timed out has itself been silent for half of the patience."""
    server = Server([])

    def stay_silent(_: httpx2.Request) -> httpx2.Response:
        server.clock.now += SILENCE_S / 2
        return a_stream(httpx2.ReadTimeout("timed out"))

    server.streams = iter([stay_silent, *[httpx2.ConnectTimeout("timed out")] * 10])
    began = server.clock.now
    with pytest.raises(ServerError):
        server.follow()
    assert server.clock.now - began <= SILENCE_S


def test_a_server_may_close_the_stream_of_a_running_job():
    streams = [a_stream(events(1), events(2)[:-5]), a_stream(), a_stream(events(2)), a_stream()]
    server = Server(streams, [RUNNING, RUNNING, ENDED])
    assert server.numbers() == [1, 2]
    assert server.resumed == [None, "1", "1", "2"]
    assert (server.told, server.clock.slept) == ([], [0.5, 0.5])


def test_a_connection_that_brings_nothing_is_made_less_and_less_often():
    losses = (a_stream(httpx2.ReadError("")) for _ in range(4))
    server = Server([*losses, a_stream(), a_stream()], [ENDED])
    assert server.follow() == []
    assert server.clock.slept == [0.5, 1.0, 2.0, 4.0]
    assert len(server.told) == 1


def test_a_job_that_is_deleted_meanwhile_is_told():
    server = Server([a_stream(events(1)), a_problem(404, "job_not_found")], [RUNNING])
    with pytest.raises(ServerError) as caught:
        server.follow()
    assert caught.value.code == "job_not_found"


@pytest.mark.parametrize(
    "answer",
    [
        httpx2.Response(200, text="<html>a page</html>", headers={"Content-Type": "text/html"}),
        a_stream(message("message", {"number": "none"})),
        a_stream(b"data: no JSON\n\n"),
        httpx2.Response(302, headers={"Location": "https://elsewhere.test"}),
    ],
)
def test_what_is_no_stream_of_ours_is_told(answer):
    with pytest.raises(ServerError, match="check --url") as caught:
        Server([answer]).follow()
    assert caught.value.code == "unexpected_reply"
