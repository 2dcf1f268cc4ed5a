"""Every bad submission of a training job, over real HTTP, against the real server.

Each gets its documented refusal or is taken for what it is. Of what is refused nothing is left:
no job, no file. And the server goes on.
"""

import errno
import gzip
import json
import os
import random
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from service.app import create_app
from service.jobs.intake import apart, spool
from service.jobs.ledger import Ledger
from service.store.open import DATABASE_NAME
from tests.service.api.jobs.samples import JOBS, form, make_hasty, submitted
from tests.support.backbones import save_tiny_bert
from tests.support.edge import a_problem, serving, settings_for, wait_until
from tests.support.row_files import bomb, four, labelled

MAX_BYTES = 2_000_000
JSON = {"content-type": "application/json"}
EDGE = {"content-type": "multipart/form-data; boundary=edge"}


@dataclass(frozen=True)
class Place:
    """A server with a model, and where its data are."""

    client: httpx2.Client
    folder: Path
    ledger: Ledger

    @property
    def left(self) -> tuple[dict[str, int], list[str]]:
        """The jobs by status, and the files beside those of the database."""
        names = (path.name for path in self.folder.iterdir())
        files = sorted(name for name in names if not name.startswith(DATABASE_NAME))
        return {str(status): count for status, count in self.ledger.counts().items()}, files


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    backbone = save_tiny_bert(tmp_path_factory.mktemp("backbone"))
    folder = tmp_path_factory.mktemp("data")
    settings = settings_for(
        folder,
        backbone=str(backbone),
        device="cpu",
        threads=1,
        max_dataset_bytes=MAX_BYTES,
        max_dataset_rows=10_000,
        max_body_bytes=1_000_000,
        train=False,
    )
    app = create_app(settings)
    with serving(app) as url, httpx2.Client(base_url=url, timeout=30) as client:
        ledger = app.state.live.warm.jobs.ledger
        make_hasty(ledger)
        yield Place(client, folder, ledger)


@pytest.fixture
def client(place: Place) -> httpx2.Client:
    return place.client


@pytest.fixture
def refused(place: Place) -> Iterator[httpx2.Client]:
    """The client of a test that leaves nothing behind."""
    before = place.left
    yield place.client
    wait_until(lambda: place.left == before)
    assert place.client.get("/readyz").status_code == 200


def part(name: str, content: bytes, *, filename: str | None = None, head: str = "") -> bytes:
    named = "" if filename is None else f'; filename="{filename}"'
    disposition = f'Content-Disposition: form-data; name="{name}"{named}\r\n{head}\r\n'
    return b"--edge\r\n" + disposition.encode() + content + b"\r\n"


SPEC = part("spec", b'{"task": "spam"}')
TRAIN = part("train", four(), filename="a.jsonl")
END = b"--edge--\r\n"


# --- rows -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "status", "code", "field"),
    [
        (b"", 422, "empty_dataset", "train"),
        (labelled(("a", "no"), ("b", "no")), 422, "one_class", "train"),
        (labelled(("a", "x"), ("b", "y"), ("c", "z")), 422, "split_too_small", "validation"),
        (b'{"text": "a"}\n' * 30, 422, "too_many_bad_rows", "train"),
        (b'{"body": "a", "label": "no"}\n' * 30, 422, "too_many_bad_rows", "train"),
        (b"\xff\xfe\xfd\n" * 30, 422, "unreadable_file", "train"),
        (b"\xe9t\xe9\n" * 30, 422, "too_many_bad_rows", "train"),
        (four() * 3000, 422, "too_many_rows", "train"),
        (b"a" * (MAX_BYTES + 1), 413, "file_too_large", "train"),
        (bomb(MAX_BYTES * 4), 413, "file_too_large", "train"),
        (gzip.compress(gzip.compress(four()), mtime=0), 422, "too_many_bad_rows", "train"),
        (b"[" + four() + b"]", 422, "unsupported_format", "train"),
        (b"[" * 100_000 + b"\n", 422, "too_many_bad_rows", "train"),
        (b'{"text": NaN, "label": "no"}\n' * 9, 422, "too_many_bad_rows", "train"),
        (b"\x00" * 1000, 422, "too_many_bad_rows", "train"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_rows_that_cannot_be_trained_on(
    refused: httpx2.Client, content: bytes, status: int, code: str, field: str
) -> None:
    response = refused.post(JOBS, **form(train=("rows.jsonl", content)))
    problem = a_problem(response, status, code)
    assert problem["errors"][0]["field"] == field
    if code == "too_many_bad_rows":
        assert problem["errors"][0]["message"].startswith("line 1: ")


def test_a_label_that_is_too_long_is_a_bad_row(refused: httpx2.Client) -> None:
    content = four() + labelled(*[("e", "l" * 5000)] * 3)
    problem = a_problem(
        refused.post(JOBS, **form(train=("a.jsonl", content))), 422, "too_many_bad_rows"
    )
    assert [error["message"] for error in problem["errors"]] == [
        f"line {line}: label 'label' has 5,000 characters; at most 256" for line in (5, 6, 7)
    ]


def test_validation_that_is_all_trained_on(refused: httpx2.Client) -> None:
    for split in ("validation", "test"):
        files = {"train": ("a.jsonl", four()), split: ("b.jsonl", four())}
        problem = a_problem(refused.post(JOBS, **form(**files)), 422, f"{split}_leaks")
        assert problem["errors"][0]["field"] == split


def test_labels_that_nothing_is_trained_on(refused: httpx2.Client) -> None:
    files = {"train": ("a.jsonl", four()), "validation": ("b.csv", b"text,label\ne,perhaps\n")}
    problem = a_problem(refused.post(JOBS, **form(**files)), 422, "unknown_label")
    assert "'perhaps'" in problem["detail"]


def test_a_column_that_is_not_there(refused: httpx2.Client) -> None:
    spec = {"task": "spam", "template": "{title}: {body}"}
    files = {"train": ("a.csv", b"title,text,label\na,b,no\n")}
    problem = a_problem(refused.post(JOBS, **form(spec, **files)), 422, "missing_column")
    assert "no column 'body'; its columns are ['title', 'text', 'label']" in problem["detail"]


def test_odd_rows_that_are_rows(client: httpx2.Client) -> None:
    quoted = b'\xef\xbb\xbftext,label\r\n"one\r\ntwo","no, ""really"""\r\nb,yes\r\n' * 1
    quoted += b'c,yes\r\nd,"no, ""really"""\r\n'
    job = client.post(JOBS, **form(train=("a.csv", quoted))).json()
    assert job["files"]["train"]["classes"] == {'no, "really"': 2, "yes": 2}
    many = labelled(*[(f"text {row}", f"label {row % 2000}") for row in range(4000)])
    job = client.post(JOBS, **form(train=("a.jsonl", many))).json()
    assert len(job["files"]["train"]["classes"]) == 2000
    torn = four() + labelled(("a", "yes"), ("c", "no"))
    job = client.post(JOBS, **form(train=("a.jsonl", torn))).json()
    assert job["files"]["train"]["conflicts"] == 2
    assert any("under more than one label" in warning for warning in job["warnings"])


# --- options --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "code", "field"),
    [
        ({}, "missing_field", "task"),
        ({"task": "A b"}, "invalid_value", "task"),
        ({"task": "latest"}, "invalid_manifest", "task"),
        ({"task": "t", "epoch": 3}, "unknown_field", "epoch"),
        ({"task": "t", "epochs": "3"}, "invalid_value", "epochs"),
        ({"task": "t", "epochs": 0}, "invalid_value", "epochs"),
        ({"task": "t", "epochs": 3.5}, "invalid_value", "epochs"),
        ({"task": "t", "epochs": True}, "invalid_value", "epochs"),
        ({"task": "t", "seed": -1}, "invalid_value", "seed"),
        ({"task": "t", "seed": 2**63}, "invalid_value", "seed"),
        ({"task": "t", "learning_rate": 0}, "invalid_value", "learning_rate"),
        ({"task": "t", "learning_rate": float("nan")}, "invalid_value", "learning_rate"),
        ({"task": "t", "learning_rate": float("inf")}, "invalid_value", "learning_rate"),
        ({"task": "t", "min_metric": float("nan")}, "invalid_value", "min_metric"),
        ({"task": "t", "min_metric": 1.5}, "invalid_value", "min_metric"),
        ({"task": "t", "activate": "yes"}, "invalid_value", "activate"),
        ({"task": "t", "variant": "magic"}, "invalid_value", "variant"),
        ({"task": "t", "layers": []}, "unsupported_layers", "layers"),
        ({"task": "t", "layers": [9]}, "unsupported_layers", "layers"),
        ({"task": "t", "layers": "every"}, "invalid_value", "layers"),
        ({"task": "t", "max_length": 4, "length": 2}, "invalid_max_length", "max_length"),
        ({"task": "t", "max_length": 1000}, "invalid_option", "max_length"),
        ({"task": "t", "length": 512, "max_length": 64}, "invalid_max_length", "max_length"),
        ({"task": "t", "verbalizers": {"no": "w1"}}, "invalid_option", "verbalizers"),
        ({"task": "t", "template": "{text"}, "invalid_template", "template"),
        ({"task": "t", "template": "nothing"}, "invalid_template", "template"),
        ({"task": "t", "template": "{text.__class__}"}, "invalid_template", "template"),
        ({"task": "t", "template": ""}, "invalid_value", "template"),
        ({"task": "t", "template": "x" * 5000}, "invalid_value", "template"),
        ({"task": "t", "label_field": "text"}, "invalid_option", "label_field"),
        ({"task": "t", "labels": ["no"]}, "invalid_value", "labels"),
        ({"task": "t", "labels": ["no", "no"]}, "invalid_option", "labels"),
        ({"task": "t", "labels": ["a", "b", "l" * 5000]}, "invalid_value", "labels.2"),
        ({"task": "t", "labels": ["no", "maybe"]}, "too_many_bad_rows", "train"),
        ({"task": "t", "max_bad_rows": -1}, "invalid_value", "max_bad_rows"),
        ({"task": "t", "max_bad_rows": 1.5}, "invalid_value", "max_bad_rows"),
        ({"task": "t", "max_bad_rows": "2 %"}, "invalid_value", "max_bad_rows"),
        ({"task": "t", "metadata": {"k": 1}}, "invalid_value", "metadata.k"),
        ({"task": "t", "metadata": {str(n): "" for n in range(17)}}, "invalid_value", "metadata"),
        ({"task": "t", "train": []}, "unknown_field", "train"),
        ([], "invalid_value", None),
        ("task", "invalid_value", None),
        (None, "invalid_value", None),
    ],
    ids=repr,
)
def test_options_that_cannot_be_used(
    refused: httpx2.Client, spec: Any, code: str, field: str | None
) -> None:
    files = {"train": ("a.jsonl", four())}
    response = refused.post(JOBS, data={"spec": json.dumps(spec)}, files=files)
    problem = a_problem(response, 422, code)
    assert problem["errors"][0]["field"] == field


@pytest.mark.parametrize(
    ("spec", "status", "code"),
    [
        (b"", 400, "invalid_json"),
        (b"{", 400, "invalid_json"),
        (b"task=spam", 400, "invalid_json"),
        (b"\xff", 400, "invalid_json"),
        (b"[" * 100_000, 400, "invalid_json"),
        (b'{"task": "\\ud800"}', 422, "invalid_text"),
        (b'{"task": "spam", "labels": [' + b"1," * 70_000 + b"1]}", 422, "too_many_values"),
        (b" " * 1_000_001, 413, "body_too_large"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_options_that_cannot_be_read(
    refused: httpx2.Client, spec: bytes, status: int, code: str
) -> None:
    for content in (part("spec", spec) + TRAIN + END, TRAIN + part("spec", spec) + END):
        problem = a_problem(refused.post(JOBS, content=content, headers=EDGE), status, code)
        if code in ("invalid_json", "body_too_large"):
            assert problem["errors"][0]["field"] == "spec"
            assert problem["detail"].startswith("spec is ")


# --- forms ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "status", "code", "field"),
    [
        (b"", 400, "invalid_form", None),
        (END, 422, "missing_field", "spec"),
        (SPEC + END, 422, "missing_field", "train"),
        (TRAIN + END, 422, "missing_field", "spec"),
        (SPEC + TRAIN, 400, "invalid_form", None),
        (SPEC + TRAIN[:-20], 400, "invalid_form", None),
        (SPEC + TRAIN + TRAIN + END, 422, "repeated_field", "train"),
        (SPEC + SPEC + TRAIN + END, 422, "repeated_field", "spec"),
        (SPEC + part("data", four(), filename="a.jsonl") + END, 422, "unknown_field", "data"),
        (SPEC + part("train", four()) + END, 422, "unsupported_format", "train"),
        (SPEC + part("train", four(), filename="") + END, 422, "unsupported_format", "train"),
        (SPEC + part("train", four(), filename="a.xlsx") + END, 422, "unsupported_format", "train"),
        (SPEC + part("train", four(), filename="a.gz") + END, 422, "unsupported_format", "train"),
        (
            SPEC + TRAIN + part("test", four(), filename="b") + END,
            422,
            "unsupported_format",
            "test",
        ),
        (b"--other\r\n\r\n", 400, "invalid_form", None),
        (b"\x00" * 5000, 400, "invalid_form", None),
    ],
    ids=lambda value: repr(value)[-40:],
)
def test_forms_that_are_none(
    refused: httpx2.Client, content: bytes, status: int, code: str, field: str | None
) -> None:
    problem = a_problem(refused.post(JOBS, content=content, headers=EDGE), status, code)
    assert problem["errors"][0]["field"] == field


@pytest.mark.parametrize(
    ("content_type", "content", "status", "code"),
    [
        ("text/plain", b"{}", 415, "unsupported_media_type"),
        ("", b"{}", 415, "unsupported_media_type"),
        ("application/x-www-form-urlencoded", b"spec={}", 415, "unsupported_media_type"),
        ("application/x-ndjson", four(), 415, "unsupported_media_type"),
        ("multipart/form-data", SPEC, 400, "invalid_form"),
        ("multipart/form-data; boundary=\xe9", SPEC, 400, "invalid_form"),
        ("application/json", b"", 400, "invalid_json"),
        ("application/json", b"[", 400, "invalid_json"),
        ("application/json", b"[]", 422, "invalid_value"),
        ("application/json", b" " * 1_000_001, 413, "body_too_large"),
        ("application/json", b'{"train":[' + b"{}," * 260_000 + b"{}]}", 422, "too_many_values"),
    ],
)
def test_bodies_that_are_none(
    refused: httpx2.Client, content_type: str, content: bytes, status: int, code: str
) -> None:
    headers = [(b"content-type", content_type.encode("latin-1"))]
    a_problem(refused.post(JOBS, content=content, headers=headers), status, code)


@pytest.mark.parametrize(
    ("rows", "code", "field"),
    [
        ({"train": []}, "invalid_value", "train"),
        ({}, "missing_field", "train"),
        ({"train": {"text": "a"}}, "invalid_value", "train"),
        ({"train": ["a"]}, "invalid_value", "train.0"),
        ({"train": [{"text": "a", "label": "no"}] * 4, "test": []}, "invalid_value", "test"),
        ({"train": [{"text": "a"}] * 4}, "too_many_bad_rows", "train"),
        ({"train": [{"text": 1, "label": "no"}] * 4}, "too_many_bad_rows", "train"),
        ({"train": [{"text": "a", "label": 1e400}] * 4}, "too_many_bad_rows", "train"),
    ],
    ids=repr,
)
def test_rows_in_json_that_cannot_be_used(
    refused: httpx2.Client, rows: dict[str, Any], code: str, field: str
) -> None:
    content = json.dumps({"task": "spam", **rows}).encode()
    problem = a_problem(refused.post(JOBS, content=content, headers=JSON), 422, code)
    assert problem["errors"][0]["field"] == field
    if code == "too_many_bad_rows":
        assert problem["errors"][0]["message"].startswith("row 1: ")


def test_half_a_surrogate_pair_in_json(refused: httpx2.Client) -> None:
    content = b'{"task": "spam", "train": [{"text": "\\ud800", "label": "no"}]}'
    a_problem(refused.post(JOBS, content=content, headers=JSON), 422, "invalid_text")


def test_a_form_that_is_larger_than_three_files(refused: httpx2.Client) -> None:
    length = str(3 * MAX_BYTES + 1_000_000 + 64 * 1024 + 1)
    headers = {**EDGE, "content-length": length, "expect": "100-continue"}
    raw = f"POST {JOBS} HTTP/1.1\r\nHost: x\r\n"
    raw += "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n"
    assert b"413" in spoken(refused, raw.encode())[:20]


def spoken(client: httpx2.Client, data: bytes) -> bytes:
    """What the server says to bytes, until it closes."""
    url = client.base_url
    with socket.create_connection((url.host, url.port or 0)) as raw:
        raw.settimeout(10)
        raw.sendall(data)
        reply = b""
        while chunk := raw.recv(65_536):
            reply += chunk
    return reply


@pytest.mark.parametrize("sent", [0, 1, 100, 150_000])
def test_a_client_that_leaves_in_the_middle(refused: httpx2.Client, sent: int) -> None:
    body = SPEC + part("train", b"a" * 1_900_000, filename="a.jsonl") + END
    head = f"POST {JOBS} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
    head += f"Content-Type: {EDGE['content-type']}\r\n\r\n"
    url = refused.base_url
    with socket.create_connection((url.host, url.port or 0)) as raw:
        raw.sendall(head.encode() + body[:sent])


# --- the machine ----------------------------------------------------------------------------


def test_a_full_disk(refused: httpx2.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def __init__(self, file: Any) -> None:
            self.file = file

        def write(self, data: bytes) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def close(self) -> None:
            self.file.close()

    make = spool.nameless
    monkeypatch.setattr(spool.Spool.__init__, "__defaults__", (lambda folder: Full(make(folder)),))
    for arguments in (form(), {"json": {"task": "spam", "train": [{"text": "a"}]}}):
        response = refused.post(JOBS, **arguments)
        problem = a_problem(response, 503, "disk_full")
        assert response.headers["retry-after"] == "60"
        assert problem["errors"][0]["field"] == "train"
    monkeypatch.undo()
    assert refused.get(JOBS).status_code == 200


def test_a_check_that_dies(refused: httpx2.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "FEW_BYTES", 0)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    problem = a_problem(refused.post(JOBS, **form()), 500, "examination_died")
    assert problem["errors"][0]["field"] == "train"


def test_a_submission_waits_its_turn_and_the_server_answers_meanwhile(place: Place) -> None:
    rows = [(f"text {row}", f"label {row % 5}") for row in range(2000)]
    content = gzip.compress(labelled(*rows))
    before = place.left[0]["queued"]
    with ThreadPoolExecutor() as pool:
        work = [
            pool.submit(place.client.post, JOBS, **form(train=("a.jsonl.gz", content)))
            for _ in range(3)
        ]
        while not all(one.done() for one in work):
            assert place.client.get("/livez").status_code == 200
            assert place.client.get(JOBS).status_code == 200
    assert [one.result().status_code for one in work] == [202] * 3
    assert place.left[0]["queued"] == before + 3


# --- and whatever else ----------------------------------------------------------------------


def mutated(body: bytes, chance: random.Random) -> bytes:
    """A body with a few of its bytes changed, doubled, or left out."""
    data = bytearray(body)
    for _ in range(chance.randint(1, 8)):
        place = chance.randrange(len(data))
        match chance.randrange(4):
            case 0:
                data[place] = chance.randrange(256)
            case 1:
                del data[place : place + chance.randint(1, 40)]
            case 2:
                data[place:place] = data[place : place + chance.randint(1, 40)]
            case _:
                data[place:place] = bytes(chance.randrange(256) for _ in range(4))
        if not data:
            return b""
    return bytes(data)


@pytest.mark.parametrize("seed", range(4))
def test_broken_submissions_get_an_answer_of_the_contract(place: Place, seed: int) -> None:
    chance = random.Random(seed)
    good = SPEC + TRAIN + part("test", b"text,label\ne,no\n", filename="b.csv") + END
    inline = json.dumps({"task": "spam", "train": [{"text": "a", "label": "no"}] * 4}).encode()
    before = place.left[0]["queued"]
    taken = 0
    for _ in range(40):
        form_like = chance.random() < 0.7
        body, headers = (good, EDGE) if form_like else (inline, JSON)
        response = place.client.post(JOBS, content=mutated(body, chance), headers=headers)
        if response.status_code == 202:
            taken += 1
            continue
        assert response.status_code in (400, 413, 415, 422), response.text
        a_problem(response, response.status_code, response.json()["code"])
    counts, files = place.left
    assert counts["queued"] == before + taken
    assert counts["validating_files"] == 0
    assert files == []


def test_the_server_is_as_good_as_new(place: Place) -> None:
    job = submitted(place.client)
    assert place.client.get(f"{JOBS}/{job['id']}").json()["status"] == "queued"
