"""Everything a hostile or careless client may send, over real HTTP, against the real server.

Each gets its documented refusal, or a right answer, and the next good request succeeds.
"""

import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from capsules.artefact.file import dump
from capsules.backbones.base import BackboneInfo
from capsules.backbones.load import load
from service.app import create_app
from tests.support.backbones import save_tiny_bert, words
from tests.support.capsules import constant_capsule, random_capsule
from tests.support.edge import a_problem, serving, settings_for
from tests.support.malformed import malformed

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
