import json
from base64 import b64encode
from collections.abc import Callable

import httpx2
import pytest

from capsules.cli.failure import UsageError
from service.cli.client import Client, ServerError
from tests.support.job_replies import Clock

URL = "http://server.test"


@pytest.fixture
def clock():
    return Clock()


def a_client(
    answer: Callable[[httpx2.Request], httpx2.Response], clock: Clock, url: str = URL
) -> Client:
    return Client(
        url,
        timeout=10.0,
        transport=httpx2.MockTransport(answer),
        clock=clock,
        sleep=clock.sleep,
    )


def problem(status: int, code: str, **more: object) -> httpx2.Response:
    headers = {"Retry-After": "2"} if status == 503 else {}
    document = {"detail": "What happened.", "code": code, "request_id": "abc", **more}
    return httpx2.Response(status, json=document, headers=headers)


STORED = {"task": "trec", "version": 3, "digest": "d" * 64, "bytes": 10, "later": "addition"}


@pytest.mark.parametrize(("status", "created"), [(201, True), (200, False)])
def test_an_upload_is_the_bare_file(status, created, clock):
    asked = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return httpx2.Response(status, json=STORED)

    stored, new = a_client(answer, clock).upload(b"bytes")
    assert (stored.task, stored.version, new) == ("trec", 3, created)
    assert stored.model_dump()["later"] == "addition"
    (request,) = asked
    assert (request.method, str(request.url)) == ("POST", f"{URL}/v1/capsules")
    assert request.headers["content-type"] == "application/octet-stream"
    assert request.content == b"bytes"


@pytest.mark.parametrize("code", ["warming", "queue_full", "busy"])
def test_a_busy_server_is_asked_again(code, clock, capsys):
    answers = iter([problem(503, code), problem(503, code), httpx2.Response(201, json=STORED)])
    stored, _ = a_client(lambda request: next(answers), clock).upload(b"")
    assert stored.version == 3
    assert clock.slept == [2.0, 2.0]
    assert capsys.readouterr().err.splitlines() == ["What happened. Trying again in 2 s."] * 2


def test_a_server_that_stays_busy_is_given_up_on_in_time(clock, capsys):
    with pytest.raises(ServerError) as caught:
        a_client(lambda request: problem(503, "warming"), clock).upload(b"")
    assert caught.value.code == "warming"
    assert clock.now < 110.0
    assert len(clock.slept) == 4


@pytest.mark.parametrize("code", ["draining", "engine_stopped"])
def test_a_server_on_its_way_out_is_not_asked_again(code, clock):
    with pytest.raises(ServerError) as caught:
        a_client(lambda request: problem(503, code), clock).upload(b"")
    assert caught.value.code == code
    assert clock.slept == []


def test_a_problem_is_one_message_with_its_code(clock):
    errors = [{"field": "text.3", "message": "No.", "code": "empty_text"}]
    with pytest.raises(ServerError) as caught:
        a_client(lambda request: problem(422, "empty_text", errors=errors), clock).upload(b"")
    failure = caught.value
    assert (failure.message, failure.code) == ("What happened.", "empty_text")
    assert (failure.answered, failure.field) == (True, "text.3")


def test_a_fault_of_the_server_names_the_request(clock):
    with pytest.raises(ServerError, match=r"What happened\. \(request abc\)"):
        a_client(lambda request: problem(500, "internal_error"), clock).upload(b"")


@pytest.mark.parametrize(
    "response",
    [
        httpx2.Response(404, text="<html>nginx</html>"),
        httpx2.Response(502),
        httpx2.Response(200, text="<html>a page</html>"),
        httpx2.Response(200, json={"task": "trec"}),
        httpx2.Response(302, headers={"Location": "https://elsewhere.test"}),
    ],
)
def test_an_answer_of_something_else_is_told(response, clock):
    with pytest.raises(ServerError, match="check --url") as caught:
        a_client(lambda request: response, clock).upload(b"")
    assert caught.value.code == "unexpected_reply"
    assert not caught.value.answered


@pytest.mark.parametrize(
    ("error", "code", "remedy"),
    [
        (httpx2.ConnectError("refused"), "server_unreachable", "capsule serve"),
        (httpx2.ReadTimeout("slow"), "server_timeout", "raise --timeout"),
        (httpx2.ConnectTimeout("slow"), "server_timeout", "raise --timeout"),
        (httpx2.RemoteProtocolError("gone"), "connection_broken", "capsule list"),
    ],
)
def test_no_answer_is_told_with_a_remedy(error, code, remedy, clock):
    def answer(request: httpx2.Request) -> httpx2.Response:
        raise error

    with pytest.raises(ServerError, match=remedy) as caught:
        a_client(answer, clock).upload(b"")
    assert caught.value.code == code
    assert not caught.value.answered


def test_a_password_in_the_url_is_sent_but_not_shown(clock):
    asked = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.headers["authorization"])
        raise httpx2.ConnectError("refused")

    client = a_client(answer, clock, "http://me:secret@server.test")
    with pytest.raises(ServerError, match=r"at http://server\.test ") as caught:
        client.upload(b"")
    assert "secret" not in caught.value.message
    assert asked == ["Basic " + b64encode(b"me:secret").decode()]


def a_task(name: str) -> dict[str, object]:
    return {
        "task": name,
        "version": 1,
        "versions": 1,
        "num_classes": 2,
        "servable": True,
        "updated_at": "2026-01-31T10:00:00Z",
    }


def test_the_list_goes_through_every_page(clock):
    names = [f"task-{number:04}" for number in range(1200)]

    def answer(request: httpx2.Request) -> httpx2.Response:
        limit = int(request.url.params["limit"])
        rest = [name for name in names if name > request.url.params.get("after", "")]
        page = [a_task(name) for name in rest[:limit]]
        return httpx2.Response(200, json={"data": page, "has_more": len(rest) > limit})

    assert [task.task for task in a_client(answer, clock).tasks()] == names


def test_a_list_that_never_ends_is_left(clock):
    endless = httpx2.Response(200, json={"data": [], "has_more": True})
    assert list(a_client(lambda request: endless, clock).tasks()) == []


def test_an_answer_for_each_text_is_expected(clock):
    reply = httpx2.Response(200, json={"data": [{"index": 0, "task": "t"}]})
    client = a_client(lambda request: reply, clock)
    assert len(client.classify("t", ["one"], top_k=None, truncate=True)) == 1
    with pytest.raises(ServerError):
        client.classify("t", ["one", "two"], top_k=None, truncate=True)


@pytest.mark.parametrize(
    ("top_k", "sent"),
    [
        (None, {"task": "t:prod", "text": [{"a": "é"}], "truncate": False}),
        (2, {"task": "t:prod", "text": [{"a": "é"}], "truncate": False, "top_k": 2}),
    ],
)
def test_what_is_asked_of_the_server(top_k, sent, clock):
    asked = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(json.loads(request.content))
        return httpx2.Response(200, json={"data": [{"index": 0, "task": "t"}]})

    a_client(answer, clock).classify("t:prod", [{"a": "é"}], top_k=top_k, truncate=False)
    assert asked == [sent]


@pytest.mark.parametrize(
    ("version", "path"),
    [(None, "/base/v1/capsules/trec"), (2, "/base/v1/capsules/trec/versions/2")],
)
def test_a_server_may_be_behind_a_path(version, path, clock):
    asked = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append((request.method, request.url.path))
        return httpx2.Response(200, json={"task": "trec", "versions": [2], "aliases": []})

    a_client(answer, clock, f"{URL}/base/").remove("trec", version)
    assert asked == [("DELETE", path)]


@pytest.mark.parametrize(
    "url",
    [
        *("", "localhost:8000", "ftp://host", "http://", "/x", "http://host:port", "http://[::1"),
        *("http://x..y", f"http://{'x' * 300}", "http://host?q=1", "http://host#f"),
    ],
)
def test_a_url_that_is_none_is_wrong_usage(url, clock):
    with pytest.raises(UsageError, match="--url"):
        a_client(lambda request: httpx2.Response(200), clock, url)


@pytest.mark.parametrize(
    ("url", "proxied"),
    [
        ("http://127.0.0.1:8000", False),
        ("http://localhost", False),
        ("http://[::1]:8000", False),
        ("http://capsules.test", True),
        ("http://10.0.0.1", True),
    ],
)
def test_a_proxy_is_not_asked_for_this_machine(url, proxied, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.test:3128")
    monkeypatch.setenv("NO_PROXY", "")
    with Client(url, timeout=1.0) as client:
        assert client.http.trust_env is proxied
