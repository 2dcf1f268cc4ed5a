"""Everything a hostile or careless client may send, over real HTTP, against the real server.

Each gets its documented refusal, or a right answer, and the next good request succeeds.
"""

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import httpx2
import pytest
import torch

import service.body
from capsules.artefact.file import Capsule, dump
from capsules.backbones.base import BackboneInfo
from capsules.backbones.load import load
from capsules.json_text import holds_more
from service.app import create_app
from tests.support.backbones import save_tiny_bert, words
from tests.support.capsules import constant_capsule, random_capsule
from tests.support.edge import PATIENCE_S, a_problem, serving, settings_for
from tests.support.files import manifest_of
from tests.support.malformed import malformed, saved, training

PROBS = [0.125, 0.625, 0.25]
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def info(tmp_path_factory: pytest.TempPathFactory) -> BackboneInfo:
    folder = save_tiny_bert(tmp_path_factory.mktemp("backbone"))
    return load(str(folder), device="cpu", dtype="float32").info


@pytest.fixture(scope="module")
def server(info: BackboneInfo, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    settings = settings_for(
        tmp_path_factory.mktemp("data"), backbone=str(info.path), device="cpu", threads=1
    )
    artefacts = [
        dump(constant_capsule(info, PROBS, task="trec")),
        dump(random_capsule(info, task="nli", template="{premise} [and] {hypothesis}")),
    ]
    with serving(create_app(settings)) as url, httpx2.Client(base_url=url, timeout=30) as client:
        for artefact in artefacts:
            assert client.post("/v1/capsules", files={"file": ("f", artefact)}).status_code == 201
        yield client


@pytest.fixture
def client(server: httpx2.Client) -> Iterator[httpx2.Client]:
    """The server, which must answer a good request rightly after each test."""
    yield server
    reply = server.post("/v1/classify", json={"task": "trec", "text": "how far"})
    assert reply.status_code == 200
    (row,) = reply.json()["data"]
    assert row["probs"] == pytest.approx(PROBS, abs=1e-5)


# --- texts and tasks ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"task": "none", "text": "a"}, 404, "task_not_found"),
        ({"task": "trec@99", "text": "a"}, 404, "version_not_found"),
        ({"task": "trec:canary", "text": "a"}, 404, "alias_not_found"),
        ({"task": "a/b", "text": "a"}, 422, "invalid_task_name"),
        ({"task": "..", "text": "a"}, 422, "invalid_task_name"),
        ({"task": "😀", "text": "a"}, 422, "invalid_task_name"),
        ({"task": "x" * 300, "text": "a"}, 422, "invalid_task_name"),
        ({"task": "trec@" + "9" * 4000, "text": "a"}, 422, "invalid_version"),
        ({"task": "trec", "text": ""}, 422, "empty_text"),
        ({"task": "trec", "text": " \t\r\n\u00a0\u3000"}, 422, "empty_text"),
        ({"task": "trec", "text": "a" * 1_000_000}, 422, "text_too_long"),
        ({"task": "trec", "text": ["a"] * 10_000}, 422, "too_many_texts"),
        ({"task": "trec", "text": words(100), "truncate": False}, 422, "text_too_long"),
        ({"task": "nli", "text": {"premise": "a"}}, 422, "missing_input"),
        ({"task": "nli", "text": "a"}, 422, "missing_input"),
        ({"task": "nli", "text": {"premise": "a", "hypothesis": 3}}, 422, "invalid_value"),
        ({"task": "trec", "text": 3}, 422, "invalid_value"),
        ({"task": "trec", "text": None}, 422, "invalid_value"),
        ({"task": ["trec"], "text": "a"}, 422, "invalid_value"),
        ({"task": "trec", "text": "a", "explain": True}, 422, "unknown_field"),
        ({"task": "trec", "text": "a", "timeout_ms": 10**9}, 422, "timeout_too_long"),
        ({"task": "trec", "text": "\ud800"}, 422, "invalid_text"),
        ({"task": "trec", "text": "half \udfff pair"}, 422, "invalid_text"),
        ({"task": "nli", "text": {"premise": "a", "hypothesis": "\ud800"}}, 422, "invalid_text"),
        ({"task": "t\udc00", "text": "a"}, 422, "invalid_task_name"),
    ],
)
def test_a_request_that_cannot_be_answered(
    client: httpx2.Client, body: dict[str, Any], status: int, code: str
) -> None:
    response = client.post("/v1/classify", content=json.dumps(body).encode(), headers=JSON)
    a_problem(response, status, code)


@pytest.mark.parametrize(
    "text",
    [
        "a\x00b",
        "\x00",
        "😀" * 50,
        "שלום עולם",
        "\u202eright to left",
        "\ufeffmarked",
        "e\u0301" * 50,
        "\U0010ffff",
        "\n".join("line" for _ in range(50)),
        "a" * 100_000,
        "<script>alert(1)</script>",
        "{text}",
        "%s %d {0}",
    ],
)
def test_odd_texts_are_answered_rightly(client: httpx2.Client, text: str) -> None:
    response = client.post("/v1/classify", json={"task": "trec", "text": text})
    assert response.status_code == 200, response.text
    (row,) = response.json()["data"]
    assert row["probs"] == pytest.approx(PROBS, abs=1e-5)


def test_a_bad_row_among_good_ones(client: httpx2.Client) -> None:
    texts = ["a", "\ud800", "", "b" * 200_000, "c"]
    body = json.dumps({"task": "trec", "text": texts}).encode()
    response = client.post("/v1/classify", content=body, headers=JSON)
    assert response.status_code == 200
    codes = [row["error"] and row["error"]["code"] for row in response.json()["data"]]
    assert codes == [None, "invalid_text", "empty_text", "text_too_long", None]


# --- much from little -----------------------------------------------------------------------


def test_a_template_multiplies_a_text_only_within_the_limit(
    client: httpx2.Client, info: BackboneInfo
) -> None:
    upload(client, random_capsule(info, task="eightfold", template="{text}" * 8))
    upload(client, random_capsule(info, task="single"))
    # Eight times a text and the text itself are the same to a capsule that sees the first tokens.
    long, once = "w1 w2 " * 2083 + "w", "w1 w2 " * 16_664
    replies = [
        client.post("/v1/classify", json={"task": task, "text": text})
        for task, text in (("eightfold", long), ("single", once))
    ]
    eightfold, single = (reply.json()["data"][0] for reply in replies)
    assert eightfold["truncated"]
    assert eightfold["probs"] == pytest.approx(single["probs"], abs=1e-5)

    response = client.post("/v1/classify", json={"task": "eightfold", "text": "a" * 12_501})
    problem = a_problem(response, 422, "text_too_long")
    assert problem["errors"][0]["field"] == "text"
    assert "100008 characters" in problem["detail"]
    response = client.post(
        "/v1/classify", json={"task": "eightfold", "text": ["a", "b" * 12_501, "c"]}
    )
    rows = response.json()["data"]
    assert [row["error"] and row["error"]["code"] for row in rows] == [None, "text_too_long", None]
    assert rows[1]["error"]["field"] == "text.1"


def test_a_reply_is_as_large_as_it_may_be_and_no_larger(
    client: httpx2.Client, info: BackboneInfo
) -> None:
    weights = torch.rand(10_000, generator=torch.Generator().manual_seed(3))
    probs = (weights / weights.sum()).tolist()
    upload(client, constant_capsule(info, probs, task="many"))
    texts = ["a"] * 20
    whole = client.post("/v1/classify", json={"task": "many", "text": texts})
    assert whole.status_code == 200, whole.text
    for row in whole.json()["data"]:
        assert row["labels"] == [f"label-{number}" for number in range(10_000)]
        assert row["probs"] == pytest.approx(probs, abs=1e-7)
        assert row["score"] == max(row["probs"])
    best = sorted(range(10_000), key=whole.json()["data"][0]["probs"].__getitem__, reverse=True)
    part = client.post("/v1/classify", json={"task": "many", "text": texts, "top_k": 3})
    for row in part.json()["data"]:
        assert row["labels"] == [f"label-{number}" for number in best[:3]]
        assert row["probs"] == pytest.approx([probs[number] for number in best[:3]], abs=1e-7)

    for body, field in [
        ({"task": "many", "text": ["a"] * 100}, "top_k"),
        ({"task": "many", "text": ["a"] * 1024, "top_k": 1}, "text"),
        ({"inputs": [{"task": "many", "text": "a"}] * 200}, "inputs"),
        ({"tasks": ["many"] * 200, "text": "a"}, "text"),
    ]:
        problem = a_problem(client.post("/v1/classify", json=body), 422, "reply_too_large")
        assert problem["errors"][0]["field"] == field


@pytest.mark.parametrize(
    "body",
    [
        b'{"inputs":[' + b"1," * 2_000_000 + b"1]}",
        b'{"task":"trec","text":[' + b"[]," * 1_300_000 + b"[]]}",
        b'{"tasks":[' + b"1," * 2_000_000 + b'1],"text":"a"}',
        b'{"task":[' + b"[]," * 1_300_000 + b'[]],"text":"a"}',
        b"{" + b'"a":1,' * 600_000 + b'"b":1}',
        b'{"task":"trec","text":{' + b'"a":"",' * 500_000 + b'"b":""}}',
    ],
    ids=lambda body: repr(body[:25]),
)
def test_a_body_of_many_values_is_refused_without_holding_up_the_rest(
    client: httpx2.Client, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is looked through off the event loop, and others are answered meanwhile."""
    reading, answered = Event(), Event()

    def hesitant(text: bytes, limit: int) -> bool:
        reading.set()
        return answered.wait(PATIENCE_S) and holds_more(text, limit)

    monkeypatch.setattr(service.body, "holds_more", hesitant)
    with ThreadPoolExecutor() as pool:
        refused = pool.submit(client.post, "/v1/classify", content=body, headers=JSON)
        assert reading.wait(PATIENCE_S)
        assert client.get("/livez").status_code == 200
        assert not refused.done()
        answered.set()
        a_problem(refused.result(), 422, "too_many_values")


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        (b'{"inputs":[' + b"1," * 60_000 + b"1]}", "invalid_value", "inputs.0"),
        (b'{"inputs":[' + b"[]," * 30_000 + b"1]}", "invalid_value", "inputs.0"),
        (b'{"tasks":["a",' + b"1," * 60_000 + b'1],"text":"a"}', "invalid_value", "tasks.1"),
        (b'{"task":"trec","text":[' + b"[]," * 30_000 + b"1]}", "too_many_texts", "text"),
        (b'{"task":"trec","text":[' + b"[]," * 1000 + b"1]}", "invalid_request", "text.0"),
        (b'{"task":[' + b"[]," * 30_000 + b'1],"text":"a"}', "invalid_value", "task"),
        (b'{"a":1,' + b'"b":1,' * 60_000 + b'"b":1}', "invalid_request", "a"),
        (
            b'{"inputs":[' + b'{"task":"trec","text":"a"},' * 20_000 + b'{"task":"a","text":""}]}',
            "too_many_texts",
            "inputs",
        ),
    ],
    ids=lambda value: repr(value[:25]),
)
def test_of_a_large_body_the_first_fault_is_named(
    client: httpx2.Client, body: bytes, code: str, field: str
) -> None:
    problem = a_problem(client.post("/v1/classify", content=body, headers=JSON), 422, code)
    assert problem["errors"][0]["field"] == field


# --- bodies ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content_type", "body", "status", "code"),
    [
        ("application/json", b"", 400, "invalid_json"),
        ("application/json", b"{", 400, "invalid_json"),
        ("application/json", b"\xff\xfe", 400, "invalid_json"),
        ("application/json", b'{"task":"trec","text":"\xc3\x28"}', 400, "invalid_json"),
        ("application/json", b"[" * 1_000_000, 400, "invalid_json"),
        ("application/json", b'{"a":' * 500_000, 400, "invalid_json"),
        (
            "application/json",
            b'{"task":"trec","text":"\\ud800","x":' + b"[" * 100_000,
            400,
            "invalid_json",
        ),
        ("application/json", b'{"task":"trec","text":NaN}', 422, "invalid_value"),
        ("application/json", b'{"task":"trec","text":-Infinity}', 422, "invalid_value"),
        ("application/json", b'{"top_k":' + b"9" * 4000 + b"}", 422, "invalid_value"),
        ("application/json", b'{"top_k":' + b"9" * 10_000 + b"}", 400, "invalid_json"),
        ("application/json", b'"text"', 422, "invalid_value"),
        ("text/plain", b"{}", 415, "unsupported_media_type"),
        ("application/x-www-form-urlencoded", b"{}", 415, "unsupported_media_type"),
        ("multipart/form-data; boundary=x", b"{}", 415, "unsupported_media_type"),
        ("application/json", b" " * (4 * 1024 * 1024 + 1), 413, "body_too_large"),
    ],
)
def test_a_body_that_cannot_be_read(
    client: httpx2.Client, content_type: str, body: bytes, status: int, code: str
) -> None:
    headers = {"content-type": content_type}
    a_problem(client.post("/v1/classify", content=body, headers=headers), status, code)


def test_of_equal_keys_the_last_counts(client: httpx2.Client) -> None:
    body = b'{"task":"none","task":"trec","text":"","text":"a"}'
    assert client.post("/v1/classify", content=body, headers=JSON).status_code == 200


def test_a_stream_without_a_length_is_cut_off(client: httpx2.Client) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(100):
            yield b" " * 100_000

    response = client.post("/v1/classify", content=endless(), headers=JSON)
    a_problem(response, 413, "body_too_large")


def test_a_client_that_waits_for_our_word_is_refused_unread(client: httpx2.Client) -> None:
    head = (
        "POST /v1/capsules HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
        f"Content-Length: {10**12}\r\n\r\n"
    )
    with socket.create_connection((client.base_url.host, client.base_url.port or 0)) as raw:
        raw.settimeout(10)
        raw.sendall(head.encode())
        reply = b""
        while chunk := raw.recv(65_536):
            reply += chunk
    assert reply.startswith(b"HTTP/1.1 413 ")
    assert b'"code":"body_too_large"' in reply


def test_a_client_that_leaves_in_the_middle_of_its_body(client: httpx2.Client) -> None:
    for path in ("/v1/classify", "/v1/capsules"):
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{{"
        with socket.create_connection((client.base_url.host, client.base_url.port or 0)) as raw:
            raw.sendall(head.encode())


# --- uploads --------------------------------------------------------------------------------


def upload(client: httpx2.Client, capsule: Capsule) -> None:
    response = client.post("/v1/capsules", files={"file": ("f", dump(capsule))})
    assert response.status_code == 201, response.text


def test_a_manifest_comes_back_as_it_was_written(client: httpx2.Client, info: BackboneInfo) -> None:
    record = training(
        seed=2**70,
        metrics={"f1 \N{GRINNING FACE}": 1e-320, "é\x00\u2028": -0.0},
        library_versions={"torch": "\U0010ffff", "": "\ufeff\x7f"},
    )
    data = saved(random_capsule(info, task="odd"), training=record, description="\u202e a")
    response = client.post("/v1/capsules", files={"file": ("f", data)})
    assert response.status_code == 201, response.text
    stored = client.get(response.headers["location"])
    assert stored.status_code == 200
    for reply in (response, stored):
        manifest = reply.json()["manifest"]
        assert manifest == manifest_of(data)
        assert manifest["training"]["seed"] == 2**70


def test_files_that_are_no_capsules_leave_no_trace(
    client: httpx2.Client, info: BackboneInfo
) -> None:
    before = client.get("/v1/capsules").json()
    for wrong, (data, code) in malformed(info).items():
        raw = client.post(
            "/v1/capsules", content=data, headers={"content-type": "application/octet-stream"}
        )
        form = client.post("/v1/capsules", files={"file": ("x.safetensors", data)})
        for response in (raw, form):
            assert response.json().get("code") == code, (wrong, response.text)
            a_problem(response, 422, code)
    assert client.get("/v1/capsules").json() == before


def test_a_file_beyond_the_limit(client: httpx2.Client) -> None:
    data = bytes(16 * 1024 * 1024 + 1)
    a_problem(client.post("/v1/capsules", content=data), 413, "body_too_large")
    a_problem(client.post("/v1/capsules", files={"file": ("f", data)}), 413, "body_too_large")


@pytest.mark.parametrize("name", ["a%2Fb", "..%2F..%2Fetc", "%2e%2e", "😀", "x" * 300, "%00", "A"])
@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_names_that_are_none_in_paths(client: httpx2.Client, method: str, name: str) -> None:
    for path in ("", "/versions/1"):
        response = client.request(method, f"/v1/capsules/{name}{path}")
        assert response.status_code in (404, 405, 422)
        a_problem(response, response.status_code, response.json()["code"])


@pytest.mark.parametrize("header", ["x" * 10_000, "\x01", "caf\xe9", ""])
def test_odd_ids_are_replaced(client: httpx2.Client, header: str) -> None:
    response = client.get("/livez", headers=[(b"x-request-id", header.encode("latin-1"))])
    assert response.status_code in (200, 400)
    assert response.headers.get("x-request-id") != header
