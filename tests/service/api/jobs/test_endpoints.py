import gzip
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from capsules.data.packed import unpack
from capsules.errors import OptionError
from service.jobs.ledger import Ledger
from service.jobs.records import JobError, Progress
from tests.service.api.jobs.conftest import Site
from tests.service.api.jobs.samples import JOBS, form, submitted, taken_up
from tests.service.jobs.samples import activation, new_version, report
from tests.support.edge import a_problem, wait_until
from tests.support.rehearsals import FakeRehearsal
from tests.support.row_files import four, labelled
from tests.support.rows import as_csv, as_jsonl

UNKNOWN = "ftjob-" + "0" * 24
ROWS: list[dict[str, Any]] = [
    {"text": "a", "label": "no"},
    {"text": "b", "label": "no"},
    {"text": "c", "label": "yes"},
    {"text": "d", "label": "yes"},
]


@pytest.fixture
def untouched(client: httpx2.Client, site: Site) -> Iterator[None]:
    """Nothing may be left of what the test submits."""
    before = site.ledger.counts()
    files = sorted(path.name for path in site.folder.iterdir())
    yield
    assert site.ledger.counts() == before
    assert sorted(path.name for path in site.folder.iterdir()) == files


# --- submitting -----------------------------------------------------------------------------


def test_a_form_is_taken(client: httpx2.Client, ledger: Ledger) -> None:
    spec = {"task": "spam", "epochs": 3, "layers": [1, 2], "max_bad_rows": 0.5, "seed": 2**62}
    files = {
        "train": ("a.jsonl", four()),
        "validation": (
            "b.csv",
            as_csv([{"text": "e", "label": "no"}, {"text": "g", "label": "yes"}]),
        ),
        "test": ("c.tsv.gz", gzip.compress(b"label\ttext\nyes\tf\n")),
    }
    response = client.post(JOBS, **form(spec, **files))
    assert response.status_code == 202, response.text
    job = response.json()
    assert response.headers["location"] == f"{JOBS}/{job['id']}"
    assert job["status"] == "queued"
    assert job["spec"]["layers"] == [1, 2]
    assert job["seed"] == 2**62
    assert {split: file["rows"] for split, file in job["files"].items()} == {
        "train": 4,
        "validation": 2,
        "test": 1,
    }
    assert job["files"]["train"]["name"] == "a.jsonl"
    assert job["files"]["test"]["name"] == "c.tsv.gz"
    record = ledger.get(job["id"])
    assert record.spec.epochs == 3
    assert record.spec.max_bad_rows == 0.5
    data = ledger.data(job["id"], "train")
    assert data is not None
    assert [row.label for row in unpack(data)] == ["no", "no", "yes", "yes"]
    assert client.get(f"{JOBS}/{job['id']}").json() == job


def test_rows_in_json_are_taken(client: httpx2.Client) -> None:
    request = {"task": "spam", "train": ROWS, "test": [{"text": "e", "label": "yes"}]}
    response = client.post(JOBS, json=request)
    assert response.status_code == 202, response.text
    job = response.json()
    assert job["files"]["train"]["name"] == "inline"
    assert job["files"]["train"]["digest"] == (submitted(client)["files"]["train"]["digest"]), (
        "the same rows as in a file"
    )
    assert job["files"]["validation"] is None
    assert job["files"]["test"]["rows"] == 1


@pytest.mark.parametrize(
    ("name", "media_type", "content"),
    [
        ("rows.NDJSON", "application/octet-stream", as_jsonl(ROWS)),
        ("rows.json.gz", "application/gzip", gzip.compress(as_jsonl(ROWS), mtime=0)),
        ("rows.csv", "application/jsonl", as_csv(ROWS)),
        ("rows", "text/csv; charset=utf-8", as_csv(ROWS)),
        ("rows.dat", "application/x-ndjson", as_jsonl(ROWS)),
        ("rows.txt", "text/tab-separated-values", as_csv(ROWS, delimiter="\t")),
        ("C:\\data\\rows.tsv", "text/plain", as_csv(ROWS, delimiter="\t")),
        ("../../etc/rows.jsonl", "text/plain", as_jsonl(ROWS)),
    ],
)
def test_a_file_s_name_tells_its_format_or_else_its_type(
    client: httpx2.Client, name: str, media_type: str, content: bytes
) -> None:
    files = {"train": (name, content, media_type)}
    response = client.post(JOBS, data={"spec": '{"task": "spam"}'}, files=files)
    assert response.status_code == 202, response.text
    assert response.json()["files"]["train"]["name"] == name.replace("\\", "/").split("/")[-1]


def test_the_options_may_come_as_a_file(client: httpx2.Client) -> None:
    files = {
        "train": ("a.jsonl", four(), "application/octet-stream"),
        "spec": ("spec.json", b'{"task": "spam"}', "application/json"),
    }
    assert client.post(JOBS, files=files).status_code == 202


def test_rows_that_were_left_out_are_told(client: httpx2.Client, ledger: Ledger) -> None:
    content = four() * 2 + b'{"text": "e"}\n' + labelled(("a", "yes"))
    job = client.post(JOBS, **form(train=("a.jsonl", content))).json()
    found = job["files"]["train"]
    assert found["problems"] == [{"line": 9, "reason": "no label: field 'label' is missing"}]
    assert (found["rows"], found["bad_rows"]) == (9, 1)
    assert (found["duplicates"], found["conflicts"]) == (5, 1)
    assert found["classes"] == {"no": 4, "yes": 5}
    assert len(job["warnings"]) == 3
    levels = [event.level for event in ledger.events(job["id"])[0]]
    assert levels.count("warning") == 3


def test_a_key_gives_one_job(client: httpx2.Client) -> None:
    first = client.post(JOBS, **form(), headers={"Idempotency-Key": "key-1"})
    assert "idempotent-replayed" not in first.headers
    again = client.post(JOBS, **form(), headers={"Idempotency-Key": "key-1"})
    assert again.status_code == 202
    assert again.headers["idempotent-replayed"] == "true"
    assert again.json()["id"] == first.json()["id"]
    assert again.headers["location"] == first.headers["location"]
    other = form(train=("a.jsonl", four() + b"\n"))
    problem = a_problem(
        client.post(JOBS, **other, headers={"Idempotency-Key": "key-1"}),
        422,
        "idempotency_key_reused",
    )
    assert problem["errors"][0]["field"] == "Idempotency-Key"


@pytest.mark.parametrize("key", ["", "a b", "x" * 256, "caf\xe9"])
def test_a_key_is_held_to_its_shape(client: httpx2.Client, untouched: None, key: str) -> None:
    headers = [(b"idempotency-key", key.encode("latin-1"))]
    problem = a_problem(client.post(JOBS, **form(), headers=headers), 422, "invalid_value")
    assert problem["errors"][0]["field"] == "Idempotency-Key"


def test_what_the_backbone_cannot_serve_is_refused(
    client: httpx2.Client, rehearsal: FakeRehearsal, untouched: None
) -> None:
    rehearsal.failure = OptionError("max_length 9 is too much; lower it.", field="max_length")
    problem = a_problem(client.post(JOBS, **form()), 422, "invalid_option")
    assert problem["errors"][0]["field"] == "max_length"
    assert "lower it" in problem["detail"]


# --- looking --------------------------------------------------------------------------------


def test_jobs_are_listed_newest_first_by_the_page(client: httpx2.Client) -> None:
    ids = [submitted(client, task="pages")["id"] for _ in range(5)]
    seen: list[str] = []
    after: str | None = None
    more = True
    while more:
        query = {"limit": "2", "task": "pages", **({} if after is None else {"after": after})}
        page = client.get(JOBS, params=query).json()
        assert page["object"] == "list"
        seen += [job["id"] for job in page["data"]]
        more, after = page["has_more"], seen[-1]
    assert seen == ids[::-1]
    assert client.get(JOBS, params={"after": ""}).status_code == 200
    assert client.get(JOBS).json()["data"][0] == client.get(f"{JOBS}/{ids[-1]}").json()


def test_jobs_are_listed_by_status_and_task(client: httpx2.Client) -> None:
    one, other = (submitted(client, task="filters")["id"] for _ in range(2))
    client.post(f"{JOBS}/{one}/cancel")

    def found(**query: str) -> list[str]:
        return [job["id"] for job in client.get(JOBS, params=query).json()["data"]]

    assert found(task="filters", status="cancelled") == [one]
    assert found(task="filters", status="queued") == [other]
    assert found(task="filters", status="failed") == []
    assert found(task="no such task") == []


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"limit": "0"}, "limit"),
        ({"limit": "101"}, "limit"),
        ({"limit": "01"}, "limit"),
        ({"limit": "x"}, "limit"),
        ({"status": "done"}, "status"),
    ],
)
def test_a_list_is_asked_for_rightly(
    client: httpx2.Client, query: dict[str, str], field: str
) -> None:
    problem = a_problem(client.get(JOBS, params=query), 422, "invalid_value")
    assert problem["errors"][0]["field"] == field


def test_a_page_after_nothing(client: httpx2.Client) -> None:
    problem = a_problem(client.get(JOBS, params={"after": UNKNOWN}), 404, "job_not_found")
    assert problem["errors"][0]["field"] == "after"


@pytest.mark.parametrize("name", [UNKNOWN, "ftjob-x", "x" * 500, "%00", "a%2Fb", "😀"])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("GET", "/events"),
        ("GET", "/events?stream=true"),
        ("POST", "/cancel"),
        ("POST", "/resume"),
        ("DELETE", ""),
    ],
)
def test_there_is_no_such_job(client: httpx2.Client, method: str, path: str, name: str) -> None:
    response = client.request(method, f"{JOBS}/{name}{path}")
    code = "path_not_found" if name == "a%2Fb" else "job_not_found"
    a_problem(response, 404, code)


def test_a_job_in_work_is_told_as_it_is(client: httpx2.Client, ledger: Ledger) -> None:
    job = submitted(client)["id"]
    claim = taken_up(ledger, job)
    ledger.finish_epoch(claim, report(1), b"state")
    ledger.progress(
        claim, Progress(epoch=2, epochs=50, step=1, steps=2, loss=0.5, seconds_left=9.0)
    )
    told = client.get(f"{JOBS}/{job}").json()
    assert told["status"] == "running"
    assert told["queue_position"] is None
    assert told["progress"] == {
        "epoch": 2,
        "epochs": 50,
        "step": 1,
        "steps": 2,
        "loss": 0.5,
        "fraction": 0.03,
        "seconds_left": 9.0,
    }
    assert told["metrics"] == [report(1)]
    assert told["estimated_finish"] >= told["started_at"]
    client.post(f"{JOBS}/{job}/cancel")


def test_events_are_told_by_the_page(client: httpx2.Client, ledger: Ledger) -> None:
    job = submitted(client)["id"]
    claim = taken_up(ledger, job)
    ledger.finish_epoch(claim, report(1), b"state")
    client.post(f"{JOBS}/{job}/cancel")
    everything = client.get(f"{JOBS}/{job}/events").json()
    assert not everything["has_more"]
    numbers = [event["number"] for event in everything["data"]]
    assert numbers == list(range(1, len(numbers) + 1))
    (metrics,) = (event for event in everything["data"] if event["type"] == "metrics")
    assert metrics["data"]["validation_accuracy"] == 0.75
    first = client.get(f"{JOBS}/{job}/events", params={"limit": "2"}).json()
    assert first["has_more"]
    rest = client.get(f"{JOBS}/{job}/events", params={"after": "2"}).json()
    assert first["data"] + rest["data"] == everything["data"]
    known = client.get(f"{JOBS}/{job}/events", headers={"Last-Event-ID": "2"}).json()
    assert known == rest
    assert client.get(f"{JOBS}/{job}/events", params={"after": "2147483647"}).json()["data"] == []


@pytest.mark.parametrize(
    ("query", "headers", "field"),
    [
        ({"after": "-1"}, {}, "after"),
        ({"after": "2147483648"}, {}, "after"),
        ({"after": "1.0"}, {}, "after"),
        ({"limit": "1001"}, {}, "limit"),
        ({"stream": "perhaps"}, {}, "stream"),
        ({}, {"Last-Event-ID": "x"}, "Last-Event-ID"),
        ({"stream": "true"}, {"Last-Event-ID": "9" * 30}, "Last-Event-ID"),
    ],
)
def test_events_are_asked_for_rightly(
    client: httpx2.Client, query: dict[str, str], headers: dict[str, str], field: str
) -> None:
    response = client.get(f"{JOBS}/{UNKNOWN}/events", params=query, headers=headers)
    problem = a_problem(response, 422, "invalid_value")
    assert problem["errors"][0]["field"] == field


# --- changing -------------------------------------------------------------------------------


def test_a_job_is_cancelled_resumed_and_deleted(client: httpx2.Client, ledger: Ledger) -> None:
    job = submitted(client)["id"]
    claim = taken_up(ledger, job)
    ledger.finish_epoch(claim, report(1), b"state")
    a_problem(client.post(f"{JOBS}/{job}/resume"), 409, "job_not_resumable")
    a_problem(client.delete(f"{JOBS}/{job}"), 409, "job_not_ended")
    cancelled = client.post(f"{JOBS}/{job}/cancel")
    assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
    assert cancelled.json()["finished_at"] is not None
    assert client.post(f"{JOBS}/{job}/cancel").json()["status"] == "cancelled"
    resumed = client.post(f"{JOBS}/{job}/resume")
    assert (resumed.status_code, resumed.json()["status"]) == (200, "queued")
    assert resumed.json()["run"] == 2
    assert ledger.checkpoint(job) == b"state"
    client.post(f"{JOBS}/{job}/cancel")
    deleted = client.delete(f"{JOBS}/{job}")
    assert deleted.json() == {"object": "fine_tuning.job", "id": job, "deleted": True}
    a_problem(client.get(f"{JOBS}/{job}"), 404, "job_not_found")
    a_problem(client.delete(f"{JOBS}/{job}"), 404, "job_not_found")


def test_a_job_that_succeeded_stays_so(client: httpx2.Client, ledger: Ledger) -> None:
    job = submitted(client, task="won")["id"]
    claim = taken_up(ledger, job)
    ledger.succeed(claim, new_version("won"), activation(), {"validation_accuracy": 0.75})
    told = client.get(f"{JOBS}/{job}").json()
    assert (told["status"], told["fine_tuned_model"]) == ("succeeded", "won@1")
    assert told["result"]["activated"]
    a_problem(client.post(f"{JOBS}/{job}/cancel"), 409, "job_ended")
    a_problem(client.post(f"{JOBS}/{job}/resume"), 409, "job_not_resumable")
    assert client.get(f"{JOBS}/{job}").json() == told
    assert client.delete(f"{JOBS}/{job}").status_code == 200


def test_a_job_that_failed_says_why_and_is_resumed(client: httpx2.Client, ledger: Ledger) -> None:
    job = submitted(client)["id"]
    error = JobError("training_diverged", "Lower the learning rate.", "learning_rate")
    ledger.fail(taken_up(ledger, job), error)
    told = client.get(f"{JOBS}/{job}").json()
    assert told["status"] == "failed"
    assert told["error"] == {
        "code": "training_diverged",
        "message": "Lower the learning rate.",
        "param": "learning_rate",
    }
    a_problem(client.post(f"{JOBS}/{job}/cancel"), 409, "job_ended")
    resumed = client.post(f"{JOBS}/{job}/resume").json()
    assert (resumed["status"], resumed["error"]) == ("queued", None)


# --- the server -----------------------------------------------------------------------------


def test_jobs_are_counted_in_the_metrics(site: Site) -> None:
    registry = site.live.metrics.registry

    def count(status: str) -> float | None:
        return registry.get_sample_value("capsule_training_jobs", {"status": status})

    wait_until(lambda: count("running") is not None)
    assert {status for status in site.ledger.counts() if count(status) is not None} == set(
        site.ledger.counts()
    )


def test_a_server_that_goes_takes_no_jobs(client: httpx2.Client, site: Site) -> None:
    site.live.phase = "draining"
    try:
        a_problem(client.post(JOBS, **form()), 503, "draining")
        a_problem(client.get(JOBS), 503, "draining")
    finally:
        site.live.phase = "ready"
