import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
import pytest

from service.app import create_app
from service.desk import feed
from service.jobs.ledger import Ledger
from service.jobs.records import Progress
from tests.service.api.jobs.conftest import Site
from tests.service.api.jobs.samples import JOBS, submitted, taken_up
from tests.service.jobs.samples import activation, new_version, report
from tests.support.edge import EdgeEngine, a_problem, serving, settings_for, wait_until, with_engine

SSE = {"Accept": "text/event-stream"}


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "TICK_S", 0.05)
    monkeypatch.setattr(feed, "WAITING_S", 0.05)
    monkeypatch.setattr(feed, "STEP_S", 0.02)


@contextmanager
def streaming(
    client: httpx2.Client, job: str, last: int | None = None, **query: str
) -> Iterator[Iterator[httpx2.ServerSentEvent]]:
    """The messages of a job's stream, as a client reads them."""
    headers = {} if last is None else {"Last-Event-ID": str(last)}
    with client.sse(f"{JOBS}/{job}/events", headers=headers, params=query) as source:
        assert source.response.status_code == 200, source.response.read()
        yield iter(source)


def numbers(messages: list[httpx2.ServerSentEvent]) -> list[int]:
    return [int(message.id) for message in messages if message.event in ("message", "metrics")]


def test_a_job_is_followed_to_its_end(client: httpx2.Client, ledger: Ledger) -> None:
    job = submitted(client, task="followed")["id"]
    with streaming(client, job) as messages:
        first = next(messages)
        assert (first.event, first.id) == ("message", "1")
        assert json.loads(first.data) == client.get(f"{JOBS}/{job}/events").json()["data"][0]
        claim = taken_up(ledger, job)
        ledger.finish_epoch(claim, report(1), b"state")
        seen = [first]
        while seen[-1].event != "metrics":
            seen.append(next(messages))
        ledger.progress(
            claim, Progress(epoch=2, epochs=50, step=1, steps=2, loss=0.5, seconds_left=9.0)
        )
        progress = next(messages)
        assert progress.event == "progress"
        assert json.loads(progress.data)["fraction"] == 0.03
        ledger.succeed(claim, new_version("followed"), activation(), {"accuracy": 0.75})
        *rest, done = messages
    events = client.get(f"{JOBS}/{job}/events").json()["data"]
    assert numbers([*seen, *rest]) == [event["number"] for event in events]
    assert done.event == "done"
    assert json.loads(done.data) == {
        "id": job,
        "status": "succeeded",
        "fine_tuned_model": "followed@1",
        "error": None,
    }


def test_a_stream_has_headers_that_keep_it_one(client: httpx2.Client) -> None:
    job = submitted(client)["id"]
    client.post(f"{JOBS}/{job}/cancel")
    response = client.get(f"{JOBS}/{job}/events", headers=SSE)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["x-accel-buffering"] == "no"
    assert response.headers["x-request-id"]
    assert response.text.startswith(": ping\n\nevent: message\ndata: ")
    assert response.text.count("retry: 2000\n") == 1
    assert response.text.endswith("\n\n")


def test_it_is_asked_for_by_header_or_by_parameter(client: httpx2.Client) -> None:
    job = submitted(client)["id"]
    client.post(f"{JOBS}/{job}/cancel")
    url = f"{JOBS}/{job}/events"
    for query, headers, stream in [
        ({}, {}, False),
        ({"stream": "true"}, {}, True),
        ({}, {"Accept": "Text/Event-Stream;q=0.9, */*"}, True),
        ({"stream": "false"}, SSE, False),
    ]:
        response = client.get(url, params=query, headers=headers)
        media_type = "text/event-stream" if stream else "application/json"
        assert response.headers["content-type"].startswith(media_type), (query, headers)


def test_nothing_is_missed_however_often_the_connection_drops(
    client: httpx2.Client, ledger: Ledger
) -> None:
    job = submitted(client)["id"]
    claim = taken_up(ledger, job)

    def work() -> None:
        for number in range(40):
            ledger.say(claim, f"Number {number}.")
            time.sleep(0.005)
        ledger.cancel(job)

    worker = threading.Thread(target=work)
    worker.start()
    seen: list[httpx2.ServerSentEvent] = []
    last = 0
    connections = 0
    while not seen or seen[-1].event != "done":
        connections += 1
        with streaming(client, job, last) as messages:
            for count, message in enumerate(messages):
                seen.append(message)
                if message.event == "message":
                    last = int(message.id)
                if count == 6:
                    break  # and the connection with it
    worker.join()
    assert connections > 5
    assert numbers(seen) == list(range(1, last + 1))
    assert json.loads(seen[-1].data)["status"] == "cancelled"


def test_after_may_be_given_too_and_the_larger_counts(client: httpx2.Client) -> None:
    job = submitted(client)["id"]
    client.post(f"{JOBS}/{job}/cancel")
    with streaming(client, job, after="1", stream="true") as messages:
        assert numbers(list(messages)) == [2, 3]
    for last, after in [(2, "0"), (1, "2")]:
        with streaming(client, job, last, after=after) as messages:
            assert numbers(list(messages)) == [3]
    with streaming(client, job, 3) as messages:
        assert [message.event for message in messages] == ["done"]


def test_a_job_that_is_deleted_ends_its_streams(client: httpx2.Client) -> None:
    job = submitted(client)["id"]
    with streaming(client, job) as messages:
        next(messages)
        client.post(f"{JOBS}/{job}/cancel")
        client.delete(f"{JOBS}/{job}")
        *_, done = messages
    assert json.loads(done.data)["status"] in ("cancelled", "deleted")


def test_a_quiet_stream_is_kept_open(
    client: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "QUIET_S", 0.1)
    job = submitted(client)["id"]
    lines: list[str] = []
    with client.stream("GET", f"{JOBS}/{job}/events", headers=SSE) as response:
        for line in response.iter_lines():
            lines.append(line)
            if lines.count(": ping") == 3:
                break
    assert lines.count(": ping") == 3


def test_there_are_so_many_streams_and_no_more(
    site: Site, client: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert site.live.warm is not None
    desk = site.live.warm.jobs
    monkeypatch.setattr(desk, "max_streams", 3)
    job = submitted(client)["id"]
    with ExitStack() as streams:
        for _ in range(desk.max_streams):
            streams.enter_context(client.stream("GET", f"{JOBS}/{job}/events", headers=SSE))
        wait_until(lambda: desk.streams == desk.max_streams)
        response = client.get(f"{JOBS}/{job}/events", headers=SSE)
        problem = a_problem(response, 503, "too_many_streams")
        assert response.headers["retry-after"] == "5"
        assert "pages of events" in problem["detail"]
        assert client.get(f"{JOBS}/{job}/events").status_code == 200
    # Clients that went away give their places back.
    wait_until(lambda: desk.streams == 0)
    with streaming(client, job) as messages:
        next(messages)
    wait_until(lambda: desk.streams == 0)


def test_a_client_that_resets_its_connection(site: Site, client: httpx2.Client) -> None:
    assert site.live.warm is not None
    desk = site.live.warm.jobs
    job = submitted(client)["id"]
    url = httpx2.URL(site.url)
    head = f"GET {JOBS}/{job}/events?stream=true HTTP/1.1\r\nHost: x\r\n\r\n"
    with socket.create_connection((url.host, url.port or 0)) as raw:
        raw.sendall(head.encode())
        assert raw.recv(10)
        wait_until(lambda: desk.streams == 1)
    wait_until(lambda: desk.streams == 0)


def test_a_server_that_goes_ends_its_streams_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "WAITING_S", 60.0)
    app = create_app(settings_for(tmp_path), build=with_engine(EdgeEngine()))
    ended: list[float] = []
    messages: list[object] = []

    def follow(url: str, job: str) -> None:
        with (
            httpx2.Client(base_url=url, timeout=20) as client,
            streaming(client, job) as stream,
        ):
            for message in stream:
                messages.append(message.json())
        ended.append(time.monotonic())

    with serving(app) as url:
        with httpx2.Client(base_url=url, timeout=20) as client:
            job = submitted(client)["id"]
        thread = threading.Thread(target=follow, args=(url, job))
        thread.start()
        wait_until(lambda: len(messages) == 2)
        going = time.monotonic()
        app.state.live.drain()
    thread.join(10)
    assert len(messages) == 2
    assert ended[0] - going < 3
