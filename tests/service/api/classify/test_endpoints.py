import re
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.testclient import TestClient
from structlog.testing import capture_logs

from service.api.classify.service import late
from service.engine.records import Outcome, RowAnswer, Timings
from service.errors import TooManyRequests, Unavailable
from service.metrics import RANK_S
from tests.support.edge import EdgeEngine, a_problem, an_artefact, settings_for


def post(client: TestClient, **body: Any) -> httpx2.Response:
    return client.post("/v1/classify", json=body)


def metric(client: TestClient, line: str) -> float:
    match = re.search(rf"^{re.escape(line)} (.+)$", client.get("/metrics").text, re.MULTILINE)
    return float(match[1]) if match else 0.0


def test_every_shape_is_answered(client: TestClient) -> None:
    shapes: list[tuple[dict[str, Any], list[str], str]] = [
        ({"task": "trec", "text": "who"}, ["trec"], "trec"),
        ({"task": "trec@1", "text": {"text": "who"}}, ["trec"], "trec@1"),
        ({"task": "sms", "text": ["a", "b"]}, ["sms", "sms"], "sms"),
        ({"task": "nli", "text": {"premise": "a", "hypothesis": "b"}}, ["nli"], "nli"),
        (
            {"inputs": [{"task": "sms", "text": "a"}, {"task": "trec", "text": "b"}]},
            ["sms", "trec"],
            "tests/none",
        ),
        ({"tasks": ["trec", "sms"], "text": "a"}, ["trec", "sms"], "tests/none"),
        ({"model": "trec", "input": ["a", "b"]}, ["trec", "trec"], "trec"),
    ]
    for body, tasks, model in shapes:
        response = post(client, **body)
        assert response.status_code == 200, response.text
        reply = response.json()
        assert reply["model"] == model
        assert [row["task"] for row in reply["data"]] == tasks
        assert [row["index"] for row in reply["data"]] == list(range(len(tasks)))
        for row in reply["data"]:
            assert row["error"] is None
            assert row["version"] == 1
            assert row["score"] == max(row["probs"])
            assert len(row["probs"]) == len(row["labels"]) == row["num_classes"]


def test_options_are_heeded(client: TestClient, engine: EdgeEngine) -> None:
    response = post(client, task="sms", text="a", top_k=1, truncate=False, timeout_ms=5)
    assert len(response.json()["data"][0]["labels"]) == 1
    assert engine.asked[-1][0].truncate is False
    assert post(client, task="sms", text="a").status_code == 200
    assert engine.asked[-1][0].truncate is True


def test_the_stages_are_told(client: TestClient, engine: EdgeEngine) -> None:
    engine.result = Outcome(
        (RowAnswer((0.1, 0.9), 3, False),), Timings(tokenise=0.001, queue=0.0025, forward=0.02)
    )
    timing = post(client, task="trec", text="a").headers["server-timing"]
    assert timing == "tokenise;dur=1.000, queue;dur=2.500, forward;dur=20.000"


@pytest.mark.parametrize(
    ("body", "status", "code", "field"),
    [
        ({"task": "none", "text": "a"}, 404, "task_not_found", "task"),
        ({"task": "none", "text": ["a", "b"]}, 404, "task_not_found", "task"),
        ({"model": "none", "input": "a"}, 404, "task_not_found", "model"),
        ({"task": "trec@9", "text": "a"}, 404, "version_not_found", "task"),
        ({"task": "trec:prod", "text": "a"}, 404, "alias_not_found", "task"),
        ({"task": "../etc", "text": "a"}, 422, "invalid_task_name", "task"),
        ({"task": "a/b", "text": "a"}, 422, "invalid_task_name", "task"),
        ({"task": "😀", "text": "a"}, 422, "invalid_task_name", "task"),
        ({"task": "a" * 300, "text": "a"}, 422, "invalid_task_name", "task"),
        ({"task": "", "text": "a"}, 422, "invalid_task_name", "task"),
        ({"task": "latest", "text": "a"}, 422, "invalid_task_name", "task"),
        ({"tasks": ["none"], "text": "a"}, 404, "task_not_found", "tasks.0"),
        ({"inputs": [{"task": "none", "text": "a"}]}, 404, "task_not_found", "inputs.0.task"),
        ({"task": "trec", "text": ""}, 422, "empty_text", "text"),
        ({"task": "trec", "text": " \n\t\u2003"}, 422, "empty_text", "text"),
        ({"task": "trec", "text": [""]}, 422, "empty_text", "text.0"),
        ({"task": "nli", "text": "a"}, 422, "missing_input", "text"),
        ({"task": "nli", "text": {"premise": "a"}}, 422, "missing_input", "text.hypothesis"),
        ({"task": "trec", "text": {}}, 422, "missing_input", "text.text"),
        ({"task": "trec", "text": {"text": "a", "x": "b"}}, 422, "unexpected_input", "text"),
        ({"task": "trec", "text": "a" * 101}, 422, "text_too_long", "text"),
        (
            {"task": "nli", "text": {"premise": "a" * 60, "hypothesis": "b" * 60}},
            422,
            "text_too_long",
            "text",
        ),
        ({"task": "trec", "text": ["a"] * 9}, 422, "too_many_texts", "text"),
        ({"task": "trec", "text": "a", "explain": True}, 422, "unknown_field", "explain"),
        ({"task": "trec", "text": "a", "top_k": 0}, 422, "invalid_value", "top_k"),
        ({"task": "trec", "text": "a", "top_k": "2"}, 422, "invalid_value", "top_k"),
        ({"task": "trec", "text": "a", "top_k": 10**30}, 422, "invalid_value", "top_k"),
        ({"task": "trec", "text": "a", "truncate": 1}, 422, "invalid_value", "truncate"),
        ({"task": "trec", "text": "a", "timeout_ms": 0}, 422, "invalid_value", "timeout_ms"),
        (
            {"task": "trec", "text": "a", "timeout_ms": 30_001},
            422,
            "timeout_too_long",
            "timeout_ms",
        ),
        ({"inputs": []}, 422, "invalid_value", "inputs"),
        ({"inputs": [{"task": "trec"}]}, 422, "missing_field", "inputs.0.text"),
        ({"inputs": [{"text": "a", "task": 3}]}, 422, "invalid_value", "inputs.0.task"),
        ({"tasks": [], "text": "a"}, 422, "invalid_value", "tasks"),
        ({}, 422, "missing_field", "task"),
    ],
)
def test_what_cannot_be_answered_is_told_by_its_field(
    client: TestClient, body: dict[str, Any], status: int, code: str, field: str
) -> None:
    problem = a_problem(post(client, **body), status, code)
    assert problem["errors"][0]["field"] == field


def test_one_bad_row_does_not_spoil_the_others(client: TestClient, engine: EdgeEngine) -> None:
    response = post(
        client,
        inputs=[
            {"task": "trec", "text": "a"},
            {"task": "none", "text": "b"},
            {"task": "trec", "text": ""},
            {"task": "a/b", "text": "c"},
            {"task": "sms", "text": "d" * 101},
            {"task": "sms", "text": "e"},
        ],
    )
    assert response.status_code == 200
    rows = response.json()["data"]
    assert [row["error"] and row["error"]["code"] for row in rows] == [
        None,
        "task_not_found",
        "empty_text",
        "invalid_task_name",
        "text_too_long",
        None,
    ]
    assert rows[3]["error"]["field"] == "inputs.3.task"
    assert rows[5]["label"] is not None
    # What is known to be wrong never reaches the engine.
    assert [len(row.inputs["text"]) for row in engine.asked[-1]] == [1, 0, 1]


def test_a_request_of_bad_rows_alone_spares_the_engine(
    client: TestClient, engine: EdgeEngine
) -> None:
    asked = len(engine.asked)
    response = post(client, tasks=["none", "neither"], text="a")
    assert response.status_code == 200
    assert len(engine.asked) == asked
    assert response.json()["usage"]["total_tokens"] == 0


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "invalid_json"),
        (b"", 400, "invalid_json"),
        (b'{"task":"trec","text":"\xff"}', 400, "invalid_json"),
        (b"[" * 4000, 400, "invalid_json"),
        (b'{"task":"trec","text":' + b'{"a":' * 500, 400, "invalid_json"),
        (b"[]", 422, "invalid_value"),
        (b'{"task":"trec","text":NaN}', 422, "invalid_value"),
        (b'{"task":"t\\ud800","text":"a"}', 422, "invalid_task_name"),
        (b'{"task":"trec","text":{"\\ud800":"a"}}', 422, "missing_input"),
        (b'{"task":"trec","text":{"\\ud800":1}}', 422, "invalid_value"),
        (b'{"\\ud800":1}', 422, "invalid_value"),
        (b"{" + b'"a":1,' * 600 + b'"b":1}', 422, "invalid_request"),
        (b'{"task":"trec","text":"' + b"a" * 5000 + b'"}', 413, "body_too_large"),
    ],
)
def test_hostile_bodies_are_refused_and_the_next_request_succeeds(
    client: TestClient, engine: EdgeEngine, body: bytes, status: int, code: str
) -> None:
    headers = {"content-type": "application/json"}
    response = client.post("/v1/classify", content=body, headers=headers)
    a_problem(response, status, code)
    assert post(client, task="trec", text="who").status_code == 200


def test_of_equal_keys_the_last_counts(client: TestClient) -> None:
    body = b'{"task":"none","task":"trec","text":"a"}'
    response = client.post(
        "/v1/classify", content=body, headers={"content-type": "application/json"}
    )
    assert response.json()["data"][0]["task"] == "trec"


@pytest.mark.parametrize("text", ["a\x00b", "😀", "مرحبا بالعالم", "\u202eabc", "a\ufffe"])
def test_odd_characters_are_text(client: TestClient, engine: EdgeEngine, text: str) -> None:
    assert post(client, task="trec", text=text).status_code == 200
    assert engine.asked[-1][0].inputs == {"text": text}


def test_other_content_types_are_refused(client: TestClient) -> None:
    response = client.post("/v1/classify", content=b"task=trec&text=a")
    assert response.status_code == 400
    response = client.post("/v1/classify", data={"task": "trec", "text": "a"})
    a_problem(response, 415, "unsupported_media_type")


def test_a_full_queue_says_when_to_come_back(client: TestClient, engine: EdgeEngine) -> None:
    engine.failure = Unavailable("The queue is full.", code="queue_full", retry_after=1)
    response = post(client, task="trec", text=["a", "b"])
    a_problem(response, 503, "queue_full")
    assert response.headers["retry-after"] == "1"


def test_a_request_ends_with_its_time_limit(client: TestClient, engine: EdgeEngine) -> None:
    client.portal.call(engine.gate.clear)  # type: ignore[union-attr]
    response = post(client, task="trec", text="a", timeout_ms=10)
    detail = a_problem(response, 504, "deadline_exceeded")["detail"]
    # The limit that was asked for, not what of it was left for the engine.
    assert "the time limit of 10 ms; allow more with `timeout_ms`, send fewer" in detail


def test_a_client_is_not_told_to_ask_for_more_time_than_there_is(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, timeout_ms=1500)
    assert "limit of 1500 ms; send fewer" in late(1.5, settings).detail
    assert "limit of 1499 ms; allow more" in late(1.499, settings).detail


def test_scores_that_are_no_numbers_are_an_error(client: TestClient, engine: EdgeEngine) -> None:
    nan = RowAnswer((float("nan"), 0.5), 3, False)
    engine.result = Outcome((nan,), Timings(0.0, 0.0, 0.0))
    a_problem(post(client, task="trec", text="a"), 500, "non_finite_scores")


def test_requests_rows_and_cut_texts_are_counted(client: TestClient, engine: EdgeEngine) -> None:
    names = (
        'capsule_requests_total{code="200",task="trec"}',
        'capsule_requests_total{code="404",task=""}',
        'capsule_rejected_total{reason="task_not_found"}',
        "capsule_truncated_total",
    )
    before = [metric(client, name) for name in names]
    engine.result = Outcome((RowAnswer((0.1, 0.9), 3, True),) * 2, Timings(0.0, 0.0, 0.0))
    post(client, inputs=[{"task": task, "text": "a"} for task in ("trec", "unheard-of", "trec")])
    post(client, task="unheard-of", text="a")
    after = [metric(client, name) for name in names]
    assert [new - old for new, old in zip(after, before, strict=True)] == [1, 1, 2, 2]
    assert "unheard-of" not in client.get("/metrics").text


def test_a_deleted_task_is_no_label_any_more(client: TestClient) -> None:
    upload = {"file": ("brief.safetensors", an_artefact("brief", labels=("no", "yes")))}
    assert client.post("/v1/capsules", files=upload).status_code == 201
    post(client, task="brief", text="a")
    name = 'capsule_requests_total{code="200",task="brief"}'
    assert metric(client, name) == 1
    assert client.delete("/v1/capsules/brief").status_code == 200
    client.app.state.live.metrics.ranked -= RANK_S  # type: ignore[attr-defined]
    assert metric(client, name) == 1, "its last value is read once more"
    assert "brief" not in client.get("/metrics").text


def test_callers_are_told_apart_by_what_they_send(client: TestClient, engine: EdgeEngine) -> None:
    body = {"task": "trec", "text": "a"}
    engine.callers.clear()
    with capture_logs() as logs:
        for headers in ({}, {"Authorization": "swordfish"}, {"X-Api-Key": "swordfish"}, {}):
            client.post("/v1/classify", json=body, headers=headers)
    address, authorised, keyed, again = engine.callers
    assert address == again == "testclient"
    assert authorised == keyed != address
    assert "swordfish" not in str(logs) + authorised


def test_a_caller_beyond_its_share_is_told_to_wait(client: TestClient, engine: EdgeEngine) -> None:
    engine.failure = TooManyRequests("Wait.", code="caller_queue_full", retry_after=1)
    response = post(client, task="trec", text="a")
    a_problem(response, 429, "caller_queue_full")
    assert response.headers["retry-after"] == "1"


def test_texts_are_never_logged(client: TestClient) -> None:
    with capture_logs() as logs:
        post(client, task="trec", text="swordfish")
        post(client, task="trec", text={"swordfish": "swordfish"})
        post(client, task="swordfish", text=["swordfish"])
    assert "swordfish" not in str(logs)


def test_the_id_is_echoed_in_reply_and_error(client: TestClient) -> None:
    headers = {"X-Request-Id": "my id"}
    response = client.post("/v1/classify", json={}, headers=headers)
    assert a_problem(response, 422, "missing_field")["request_id"] == "my id"
    good = client.post("/v1/classify", json={"task": "trec", "text": "a"}, headers=headers)
    assert good.headers["x-request-id"] == "my id"
