import hashlib
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from service.registry.registry import Registry
from tests.service.registry.samples import JOB, put_trained
from tests.support.edge import a_problem, an_artefact

RAW = {"content-type": "application/octet-stream"}


def upload(client: TestClient, data: bytes, **headers: str) -> httpx2.Response:
    return client.post("/v1/capsules", content=data, headers=headers or RAW)


def set_alias(
    client: TestClient, version: Any = 1, *, task: str = "trec", **headers: str
) -> httpx2.Response:
    return client.put(
        f"/v1/capsules/{task}/aliases/prod",
        json={"version": version},
        headers={name.replace("_", "-"): value for name, value in headers.items()},
    )


# --- uploads --------------------------------------------------------------------------------


def test_an_upload_is_described_and_served(fresh: TestClient) -> None:
    data = an_artefact("new", seed=1)
    digest = hashlib.sha256(data).hexdigest()
    response = upload(fresh, data)
    assert response.status_code == 201
    assert response.headers["location"] == "/v1/capsules/new/versions/1"
    assert response.headers["etag"] == f'"{digest}"'
    body = response.json()
    assert set(body) == {
        *("task", "version", "digest", "created_at", "bytes", "manifest"),
        *("source", "held", "job"),
    }
    assert (body["source"], body["held"], body["job"]) == ("upload", False, None)
    assert (body["task"], body["version"], body["digest"]) == ("new", 1, digest)
    assert body["bytes"] == len(data)
    assert body["manifest"]["task"] == "new"
    reply = fresh.post("/v1/classify", json={"task": "new", "text": "a"}).json()
    assert (reply["data"][0]["version"], reply["data"][0]["digest"]) == (1, digest)


def test_the_same_bytes_again_change_nothing(fresh: TestClient) -> None:
    first = upload(fresh, an_artefact("new"))
    again = upload(fresh, an_artefact("new"))
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == first.json()
    assert again.headers["location"] == first.headers["location"]


def test_other_bytes_are_a_new_version(fresh: TestClient) -> None:
    for seed in (1, 2):
        assert upload(fresh, an_artefact("new", seed=seed)).json()["version"] == seed


def test_a_form_or_no_content_type_will_do(fresh: TestClient) -> None:
    form = {"file": ("any name.bin", an_artefact("new", seed=1))}
    assert fresh.post("/v1/capsules", files=form).status_code == 201
    request = fresh.build_request("POST", "/v1/capsules", content=an_artefact("new", seed=2))
    request.headers.pop("content-type", None)
    assert fresh.send(request).status_code == 201


@pytest.mark.parametrize("content_type", ["application/json", "text/plain", "image/png"])
def test_other_content_types_are_refused(client: TestClient, content_type: str) -> None:
    response = client.post(
        "/v1/capsules", content=an_artefact("new"), headers={"content-type": content_type}
    )
    a_problem(response, 415, "unsupported_media_type")


def test_a_form_must_have_the_file(client: TestClient) -> None:
    for form in ({"files": {"other": ("a", b"x")}}, {"files": {"file": (None, b"text")}}):
        problem = a_problem(client.post("/v1/capsules", **form), 422, "missing_field")
        assert problem["errors"][0]["field"] == "file"


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("multipart/form-data", b"x"),
        ("multipart/form-data; boundary=b", b"nothing like a form"),
        ("multipart/form-data; boundary=b", b"--b\r\n\r\nno disposition\r\n--b--\r\n"),
        (
            "multipart/form-data; boundary=b; charset=undefined",
            b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\nx\r\n--b--\r\n',
        ),
        (
            "multipart/form-data; boundary=b",
            b"".join(
                b'--b\r\nContent-Disposition: form-data; name="f"; filename="f"\r\n\r\nx\r\n'
                for _ in range(3)
            )
            + b"--b--\r\n",
        ),
    ],
)
def test_a_form_that_cannot_be_read_is_a_bad_request(
    client: TestClient, content_type: str, body: bytes
) -> None:
    response = client.post("/v1/capsules", content=body, headers={"content-type": content_type})
    a_problem(response, 400, "invalid_form")


PART = b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'
FORM_B = {"content-type": "multipart/form-data; boundary=b"}


@pytest.mark.parametrize(
    "cut", [b"", b"--b", PART, PART + b"x", PART + b"x\r\n", PART + b"x\r\n--b"]
)
def test_a_form_that_was_cut_short_is_told_so(client: TestClient, cut: bytes) -> None:
    response = client.post("/v1/capsules", content=cut, headers=FORM_B)
    problem = a_problem(response, 400, "invalid_form")
    assert "cut short" in problem["detail"]


@pytest.mark.parametrize("end", [b"--b--", b"--b--\r\n", b"--b--\r\nan epilogue"])
def test_a_form_ends_with_its_closing_boundary(client: TestClient, end: bytes) -> None:
    body = PART + b"x" * 100 + b"\r\n" + end
    a_problem(client.post("/v1/capsules", content=body, headers=FORM_B), 422, "not_safetensors")
    text = b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nx\r\n' + end
    a_problem(client.post("/v1/capsules", content=text, headers=FORM_B), 422, "missing_field")


def test_a_file_beyond_the_limit_is_refused(client: TestClient) -> None:
    a_problem(upload(client, b"x" * 4097), 413, "body_too_large")
    a_problem(
        client.post("/v1/capsules", files={"file": ("f", b"x" * 4097)}), 413, "body_too_large"
    )
    a_problem(upload(client, b"x" * 200_000), 413, "body_too_large")
    # Just as large as allowed is read, whatever the form adds to it, and found to be no capsule.
    a_problem(upload(client, b"x" * 4096), 422, "not_safetensors")
    a_problem(
        client.post("/v1/capsules", files={"file": ("f", b"x" * 4096)}), 422, "not_safetensors"
    )


def test_a_refused_file_leaves_no_trace(client: TestClient) -> None:
    before = client.get("/v1/capsules").json()
    a_problem(upload(client, b""), 422, "artefact_too_small")
    a_problem(upload(client, an_artefact("new")[:-4]), 422, "artefact_truncated")
    assert client.get("/v1/capsules").json() == before


# --- listings -------------------------------------------------------------------------------


def test_tasks_are_listed_in_pages(client: TestClient) -> None:
    whole = client.get("/v1/capsules").json()
    assert [task["task"] for task in whole["data"]] == ["nli", "sms", "trec"]
    assert whole["has_more"] is False
    first = client.get("/v1/capsules", params={"limit": 2}).json()
    assert [task["task"] for task in first["data"]] == ["nli", "sms"]
    assert first["has_more"] is True
    rest = client.get("/v1/capsules", params={"limit": 2, "after": "sms"}).json()
    assert [task["task"] for task in rest["data"]] == ["trec"]
    assert rest["has_more"] is False


@pytest.mark.parametrize(
    "limit", ["", "0", "1001", "-1", "ten", "1e3", "9" * 5000, "1.0", "01", "+1", " 1", "1_0"]
)
def test_the_page_s_size_is_checked(client: TestClient, limit: str) -> None:
    problem = a_problem(client.get("/v1/capsules", params={"limit": limit}), 422, "invalid_value")
    assert problem["errors"][0]["field"] == "limit"


def test_a_task_is_described_with_versions_and_aliases(fresh: TestClient) -> None:
    upload(fresh, an_artefact("trec", seed=1))
    set_alias(fresh, 1)
    task = fresh.get("/v1/capsules/trec").json()
    assert task["version"] == 1
    assert [version["version"] for version in task["versions"]] == [1, 2]
    assert task["versions"][0]["source"] == "upload"
    assert [(alias["alias"], alias["version"]) for alias in task["aliases"]] == [("prod", 1)]


def test_a_version_is_described_with_its_manifest(client: TestClient) -> None:
    response = client.get("/v1/capsules/trec/versions/1")
    body = response.json()
    assert body["manifest"]["labels"] == ["no", "yes"]
    assert response.headers["etag"] == f'"{body["digest"]}"'
    told = (body["source"], body["held"], body["job"], body["evaluation"])
    assert told == ("upload", False, None, None)


# --- held versions ----------------------------------------------------------------------------


EVALUATION = {"split": "test", "accuracy": 0.75, "labels": ["no", "yes"], "confusion": [[3, 1]]}


def train(client: TestClient, data: bytes, task: str = "trec", version: int = 2) -> None:
    """Register a held version, as a training worker does."""
    app = client.app
    assert isinstance(app, FastAPI)
    assert client.portal is not None
    registry: Registry = app.state.live.warm.registry
    put_trained(registry.store, data, task, held=True, evaluation=EVALUATION)
    client.portal.call(registry.refresh, task, version)


def test_a_held_version_is_described_and_passed_over(fresh: TestClient) -> None:
    train(fresh, an_artefact("trec", seed=1))
    task = fresh.get("/v1/capsules/trec").json()
    assert task["version"] == 1
    assert [version["held"] for version in task["versions"]] == [False, True]
    body = fresh.get("/v1/capsules/trec/versions/2").json()
    assert (body["source"], body["held"], body["job"]) == ("training", True, JOB)
    assert body["evaluation"] == EVALUATION
    reply = fresh.post("/v1/classify", json={"task": "trec", "text": "a"}).json()
    assert reply["data"][0]["version"] == 1
    reply = fresh.post("/v1/classify", json={"task": "trec@2", "text": "a"}).json()
    assert reply["data"][0]["version"] == 2


def test_a_task_whose_versions_are_all_held_serves_none_until_prod_is_set(
    fresh: TestClient,
) -> None:
    train(fresh, an_artefact("new"), "new", 1)
    question = {"task": "new", "text": "a"}
    problem = a_problem(fresh.post("/v1/classify", json=question), 409, "no_served_version")
    assert problem["errors"][0]["field"] == "task"
    assert "'new@1'" in problem["detail"]
    assert "PUT /v1/capsules/new/aliases/prod" in problem["detail"]
    mixed = {"inputs": [question, {"task": "trec", "text": "a"}]}
    first, second = fresh.post("/v1/classify", json=mixed).json()["data"]
    assert (first["error"]["code"], second["error"]) == ("no_served_version", None)
    assert fresh.get("/v1/capsules/new").json()["version"] is None
    (listed,) = [t for t in fresh.get("/v1/capsules").json()["data"] if t["task"] == "new"]
    assert (listed["version"], listed["servable"], listed["versions"]) == (None, False, 1)
    assert "new" not in [model["id"] for model in fresh.get("/v1/models").json()["data"]]

    assert set_alias(fresh, 1, task="new").status_code == 201
    assert fresh.post("/v1/classify", json=question).json()["data"][0]["version"] == 1
    assert "new" in [model["id"] for model in fresh.get("/v1/models").json()["data"]]
    assert fresh.get("/v1/capsules/new/versions/1").json()["held"] is True
    assert fresh.delete("/v1/capsules/new/aliases/prod").status_code == 200
    a_problem(fresh.post("/v1/classify", json=question), 409, "no_served_version")


def test_an_upload_of_what_is_held_says_so_and_changes_nothing(fresh: TestClient) -> None:
    data = an_artefact("trec", seed=1)
    train(fresh, data)
    response = upload(fresh, data)
    assert (response.status_code, response.json()["held"]) == (200, True)
    reply = fresh.post("/v1/classify", json={"task": "trec", "text": "a"}).json()
    assert reply["data"][0]["version"] == 1


def test_deleting_the_served_version_leaves_the_newest_that_is_not_held(
    fresh: TestClient,
) -> None:
    train(fresh, an_artefact("trec", seed=1))
    upload(fresh, an_artefact("trec", seed=2))
    assert fresh.get("/v1/capsules/trec").json()["version"] == 3
    fresh.delete("/v1/capsules/trec/versions/3")
    assert fresh.get("/v1/capsules/trec").json()["version"] == 1
    fresh.delete("/v1/capsules/trec/versions/1")
    assert fresh.get("/v1/capsules/trec").json()["version"] is None


# --- names ------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "DELETE"])
@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("none", 404, "task_not_found"),
        ("Bad", 422, "invalid_task_name"),
        ("a b", 422, "invalid_task_name"),
        ("%F0%9F%98%80", 422, "invalid_task_name"),
        ("%ff", 422, "invalid_task_name"),
        ("a" * 300, 422, "invalid_task_name"),
        ("latest", 422, "invalid_task_name"),
        ("trec/versions/9", 404, "version_not_found"),
        ("none/versions/1", 404, "task_not_found"),
        ("trec/versions/0", 422, "invalid_value"),
        ("trec/versions/one", 422, "invalid_value"),
        ("trec/versions/1.0", 422, "invalid_value"),
        ("trec/versions/+1", 422, "invalid_value"),
        ("trec/versions/%2B1", 422, "invalid_value"),
        ("trec/versions/-1", 422, "invalid_value"),
        ("trec/versions/01", 422, "invalid_value"),
        ("trec/versions/1_0", 422, "invalid_value"),
        ("trec/versions/%201%20", 422, "invalid_value"),
        ("trec/versions/1%0A", 422, "invalid_value"),
        ("trec/versions/%D9%A1", 422, "invalid_value"),
        ("trec/versions/2147483648", 422, "invalid_value"),
        ("trec/versions/" + "9" * 400, 422, "invalid_value"),
        ("a%2Fb", 404, "path_not_found"),
        ("trec/nothing", 404, "path_not_found"),
        ("trec/", 404, "path_not_found"),
    ],
)
def test_what_does_not_exist_is_told_apart(
    client: TestClient, method: str, path: str, status: int, code: str
) -> None:
    a_problem(client.request(method, f"/v1/capsules/{path}"), status, code)


# --- downloads ------------------------------------------------------------------------------


def test_the_file_comes_back_byte_for_byte(fresh: TestClient) -> None:
    data = an_artefact("new", seed=3)
    upload(fresh, data)
    response = fresh.get("/v1/capsules/new/versions/1/artefact")
    assert response.content == data
    assert response.headers["content-type"] == "application/octet-stream"
    assert response.headers["etag"] == f'"{hashlib.sha256(data).hexdigest()}"'
    disposition = response.headers["content-disposition"]
    assert disposition == 'attachment; filename="new-1.safetensors"'


def test_a_client_that_has_the_file_is_spared_it(client: TestClient) -> None:
    path = "/v1/capsules/trec/versions/1/artefact"
    etag = client.get(path).headers["etag"]
    response = client.get(path, headers={"if-none-match": etag})
    assert (response.status_code, response.content) == (304, b"")
    assert response.headers["etag"] == etag
    assert client.get(path, headers={"if-none-match": '"other"'}).status_code == 200


# --- deletions ------------------------------------------------------------------------------


def test_deleting_the_newest_version_rolls_back(fresh: TestClient) -> None:
    upload(fresh, an_artefact("sms", seed=1, labels=3))
    response = fresh.delete("/v1/capsules/sms/versions/2")
    assert response.status_code == 200
    assert response.json() == {"task": "sms", "versions": [2], "aliases": []}
    reply = fresh.post("/v1/classify", json={"task": "sms", "text": "a"}).json()
    assert reply["data"][0]["version"] == 1
    a_problem(fresh.get("/v1/capsules/sms/versions/2"), 404, "version_not_found")


def test_a_deleted_task_is_gone_with_its_aliases(fresh: TestClient) -> None:
    set_alias(fresh)
    response = fresh.delete("/v1/capsules/trec")
    assert response.json() == {"task": "trec", "versions": [1], "aliases": ["prod"]}
    a_problem(fresh.get("/v1/capsules/trec"), 404, "task_not_found")
    classify = fresh.post("/v1/classify", json={"task": "trec", "text": "a"})
    a_problem(classify, 404, "task_not_found")


# --- aliases --------------------------------------------------------------------------------


def test_an_alias_decides_what_the_bare_name_means(fresh: TestClient) -> None:
    upload(fresh, an_artefact("trec", seed=1, labels=("no", "yes")))
    response = set_alias(fresh, 1)
    assert response.status_code == 201
    alias = response.json()
    assert (alias["alias"], alias["version"]) == ("prod", 1)
    assert response.headers["etag"] == f'"{alias["revision"]}"'
    for reference in ("trec", "trec:prod"):
        reply = fresh.post("/v1/classify", json={"task": reference, "text": "a"}).json()
        assert reply["data"][0]["version"] == 1
    assert set_alias(fresh, 2).status_code == 200
    reply = fresh.post("/v1/classify", json={"task": "trec", "text": "a"}).json()
    assert reply["data"][0]["version"] == 2


def test_an_alias_moves_only_from_the_revision_that_is_named(fresh: TestClient) -> None:
    upload(fresh, an_artefact("trec", seed=1, labels=("no", "yes")))
    first = set_alias(fresh, 1).headers["etag"]
    second = set_alias(fresh, 2, if_match=first)
    assert second.status_code == 200
    a_problem(set_alias(fresh, 1, if_match=first), 412, "alias_conflict")
    assert set_alias(fresh, 1, if_match="*").status_code == 200
    a_problem(set_alias(fresh, 1, if_none_match="*"), 412, "alias_conflict")
    a_problem(set_alias(fresh, 1, if_none_match='"x"'), 400, "invalid_precondition")


def test_an_alias_is_deleted_only_at_the_revision_that_is_named(fresh: TestClient) -> None:
    path = "/v1/capsules/trec/aliases/prod"
    etag = set_alias(fresh).headers["etag"]
    a_problem(fresh.delete(path, headers={"if-match": '"0"'}), 412, "alias_conflict")
    response = fresh.delete(path, headers={"if-match": etag})
    assert response.json()["alias"] == "prod"
    a_problem(fresh.delete(path), 404, "alias_not_found")


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ({"version": "1"}, "invalid_value", "version"),
        ({"version": 0}, "invalid_value", "version"),
        ({"version": 2**31}, "invalid_value", "version"),
        ({"version": True}, "invalid_value", "version"),
        ({}, "missing_field", "version"),
        ({"version": 1, "weight": 2}, "unknown_field", "weight"),
        ([], "invalid_value", None),
    ],
)
def test_the_target_of_an_alias_is_checked(
    client: TestClient, body: Any, code: str, field: str | None
) -> None:
    response = client.put("/v1/capsules/trec/aliases/prod", json=body)
    assert a_problem(response, 422, code)["errors"][0]["field"] == field


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
@pytest.mark.parametrize(
    "precondition", [{}, {"if-match": "*"}, {"if-match": '"1"'}, {"if-none-match": "*"}]
)
@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/v1/capsules/trec/aliases/Bad", "invalid_alias_name"),
        ("/v1/capsules/trec/aliases/latest", "invalid_alias_name"),
        ("/v1/capsules/Bad/aliases/prod", "invalid_task_name"),
    ],
)
def test_names_come_before_preconditions(
    client: TestClient, method: str, precondition: dict[str, str], path: str, code: str
) -> None:
    response = client.request(method, path, json={"version": 1}, headers=precondition)
    a_problem(response, 422, code)


def test_an_alias_needs_a_task_a_version_and_a_name(client: TestClient) -> None:
    a_problem(set_alias(client, 9), 404, "version_not_found")
    a_problem(set_alias(client, 1, task="none"), 404, "task_not_found")
    bad = client.put("/v1/capsules/trec/aliases/Bad", json={"version": 1})
    a_problem(bad, 422, "invalid_alias_name")
    a_problem(client.put("/v1/capsules/trec/aliases/prod", content=b"x"), 400, "invalid_json")
