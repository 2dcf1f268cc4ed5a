import json
from collections.abc import Callable, Iterable
from pathlib import Path

import httpx2
import pytest

from capsules.cli.failure import UsageError
from service.cli.client import ServerError
from service.cli.jobs.requests import Jobs
from service.cli.jobs.upload import LARGE_BYTES, Upload
from tests.support.job_replies import (
    JOB,
    TIMEOUT_S,
    Clock,
    a_job,
    a_problem,
    jobs_of,
)

BASE = "/v1/admin/training/jobs"
TAKEN = httpx2.Response(202, json=a_job(status="queued", later="addition"))
BROKEN = httpx2.ReadError("reset by peer")

Answer = httpx2.Response | Exception


class Server:
    """Answers in order, and keeps what it was asked."""

    def __init__(self, *answers: Answer) -> None:
        self.clock = Clock()
        self.asked: list[httpx2.Request] = []
        self.bodies: list[bytes] = []
        self.answers = iter(answers)
        self.jobs = jobs_of(self.answer, self.clock)

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(request)
        self.bodies.append(request.read())
        found = next(self.answers)
        if isinstance(found, Exception):
            raise found
        return found


def submit(jobs: Jobs, *files: Path) -> str:
    splits = dict(zip(("train", "validation"), files, strict=False))
    uploads = {split: Upload(file) for split, file in splits.items()}
    try:
        return jobs.submit({"task": "tickets"}, uploads, "a-key").id
    finally:
        for upload in uploads.values():
            upload.close()


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"text": "a", "label": "b"}\n')
    return path


def test_a_submission_is_a_form_with_the_spec_in_front(rows, tmp_path):
    other = tmp_path / "dev.csv"
    other.write_bytes(b"text,label\n")
    server = Server(TAKEN)
    assert submit(server.jobs, rows, other) == JOB
    (request,) = server.asked
    (body,) = server.bodies
    assert (request.method, request.url.path) == ("POST", BASE)
    assert request.headers["idempotency-key"] == "a-key"
    assert int(request.headers["content-length"]) == len(body)
    parts = body.split(b"--" + request.headers["content-type"].partition("=")[2].encode())
    assert b'name="spec"' in parts[1]
    assert json.loads(parts[1].partition(b"\r\n\r\n")[2]) == {"task": "tickets"}
    assert b'name="train"; filename="rows.jsonl"' in parts[2]
    assert rows.read_bytes() in parts[2]
    assert b'name="validation"; filename="dev.csv"' in parts[3]


def test_a_large_file_is_sent_as_it_is_gzipped(tmp_path):
    large = tmp_path / "rows.jsonl"
    large.write_bytes(b'{"text": "a", "label": "b"}\n' * (LARGE_BYTES // 20))
    server = Server(TAKEN)
    submit(server.jobs, large)
    assert server.asked[0].headers["transfer-encoding"] == "chunked"
    assert b'filename="rows.jsonl.gz"\r\nContent-Type: application/gzip' in server.bodies[0]
    assert len(server.bodies[0]) < LARGE_BYTES / 10


@pytest.mark.parametrize(
    "answers",
    [
        [BROKEN],
        [httpx2.ReadTimeout("slow")],
        [a_problem(409, "idempotency_in_progress")],
        [BROKEN, httpx2.ConnectError("refused"), a_problem(409, "idempotency_in_progress")],
        [a_problem(503, "warming", **{"Retry-After": "2"})],
    ],
)
def test_a_submission_that_may_have_been_taken_is_repeated_under_its_key(answers, rows, capsys):
    server = Server(*answers, TAKEN)
    assert submit(server.jobs, rows) == JOB
    assert len(server.asked) == len(answers) + 1
    assert {request.headers["idempotency-key"] for request in server.asked} == {"a-key"}
    # The form's boundary differs, not what is in it.
    assert {rows.read_bytes() in body for body in server.bodies} == {True}
    assert capsys.readouterr().err.count("Trying again") == len(answers)


def test_in_the_end_the_key_is_told(rows, capsys):
    server = Server(*[BROKEN] * 20)
    began = server.clock.now
    with pytest.raises(ServerError, match="add --idempotency-key a-key") as caught:
        submit(server.jobs, rows)
    assert caught.value.code == "connection_broken"
    assert server.clock.now - began < TIMEOUT_S
    assert len(server.asked) > 2


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (httpx2.ConnectError("refused"), "server_unreachable"),
        (a_problem(422, "invalid_value"), "invalid_value"),
        (a_problem(413, "body_too_large"), "body_too_large"),
        (a_problem(422, "idempotency_key_reused"), "idempotency_key_reused"),
        (httpx2.Response(202, json={"id": JOB}), "unexpected_reply"),
    ],
)
def test_a_refusal_is_final(answer, code, rows):
    server = Server(answer)
    with pytest.raises(ServerError) as caught:
        submit(server.jobs, rows)
    assert caught.value.code == code
    assert server.clock.slept == []


def pages(sizes: Iterable[int]) -> tuple[Server, list[str]]:
    """A server with so many jobs on each of its pages, and the ids of them all."""
    numbers = iter(range(1000))
    found = [[a_job(id=f"ftjob-{next(numbers)}") for _ in range(size)] for size in sizes]
    answers = [
        httpx2.Response(200, json={"object": "list", "data": page, "has_more": page != found[-1]})
        for page in found
    ]
    return Server(*answers), [str(job["id"]) for page in found for job in page]


def test_the_list_goes_through_every_page():
    server, ids = pages([2, 2, 1])
    found = [job.id for job in server.jobs.all(task="tickets", page=2)]
    assert found == ids
    assert [dict(request.url.params) for request in server.asked] == [
        {"limit": "2", "task": "tickets"},
        {"limit": "2", "task": "tickets", "after": ids[1]},
        {"limit": "2", "task": "tickets", "after": ids[3]},
    ]


def test_no_page_is_asked_for_before_it_is_needed():
    server, ids = pages([2, 2])
    assert next(server.jobs.all(status="queued")).id == ids[0]
    (request,) = server.asked
    assert request.url.params["status"] == "queued"


def test_a_list_that_never_ends_is_left():
    server = Server(httpx2.Response(200, json={"data": [], "has_more": True}))
    assert list(server.jobs.all()) == []


@pytest.mark.parametrize(
    ("ask", "method", "path"),
    [
        (lambda jobs: jobs.get(JOB), "GET", f"{BASE}/{JOB}"),
        (lambda jobs: jobs.cancel(JOB), "POST", f"{BASE}/{JOB}/cancel"),
        (lambda jobs: jobs.resume(JOB), "POST", f"{BASE}/{JOB}/resume"),
        (lambda jobs: jobs.remove(JOB), "DELETE", f"{BASE}/{JOB}"),
    ],
)
def test_what_is_asked_about_one_job(ask: Callable[[Jobs], object], method, path):
    server = Server(httpx2.Response(200, json=a_job(deleted=True)))
    ask(server.jobs)
    (request,) = server.asked
    assert (request.method, request.url.path) == (method, path)


@pytest.mark.parametrize("job", ["", ".", "..", "a/b", "a?b", "x" * 200, "ftjob-é"])
def test_what_is_no_id_is_not_asked_about(job):
    server = Server()
    with pytest.raises(UsageError, match="capsule jobs list"):
        server.jobs.get(job)
    assert server.asked == []
