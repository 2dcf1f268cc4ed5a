import json
from typing import Any

import pytest
from starlette.exceptions import HTTPException
from starlette.responses import Response

from service.errors import NotFound, Unavailable, Unprocessable
from service.notes import RequestNotes
from service.problems import (
    MAX_DETAIL,
    MAX_FAULTS,
    MAX_FIELD,
    Fault,
    InvalidRequest,
    Problem,
    respond,
    respond_http,
    responses,
    shortened,
)


@pytest.fixture
def notes() -> RequestNotes:
    return RequestNotes("the-id", started=0.0)


def document(response: Response) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(bytes(response.body))
    return content


def test_an_error_becomes_a_whole_problem(notes: RequestNotes) -> None:
    response = respond(NotFound("No such task.", code="task_not_found", field="task"), notes)
    assert response.status_code == 404
    assert response.media_type == "application/problem+json"
    assert document(response) == {
        "type": "urn:capsule:problem:task_not_found",
        "title": "Not found",
        "status": 404,
        "detail": "No such task.",
        "code": "task_not_found",
        "request_id": "the-id",
        "errors": [{"field": "task", "message": "No such task.", "code": "task_not_found"}],
        "error": {
            "message": "No such task.",
            "type": "invalid_request_error",
            "param": "task",
            "code": "task_not_found",
        },
    }
    Problem.model_validate_json(bytes(response.body), strict=True)
    assert notes.code == "task_not_found"


def test_a_full_server_says_when_to_come_back(notes: RequestNotes) -> None:
    response = respond(Unavailable("Full.", code="queue_full", retry_after=3), notes)
    assert response.headers["retry-after"] == "3"
    assert document(response)["error"]["type"] == "server_error"


def test_one_fault_is_told_by_its_own_code() -> None:
    error = InvalidRequest([Fault("top_k", "It is 0", "invalid_value")])
    assert (error.code, error.field, error.detail) == ("invalid_value", "top_k", "top_k: It is 0.")


def test_several_faults_are_listed_up_to_a_point(notes: RequestNotes) -> None:
    faults = [Fault(f"f{number}", "Wrong", "invalid_value") for number in range(1000)]
    problem = document(respond(InvalidRequest(faults), notes))
    assert problem["code"] == "invalid_request"
    assert "f0" in problem["detail"]
    assert len(problem["errors"]) == MAX_FAULTS
    assert problem["error"]["param"] == "f0"


def test_what_a_client_sent_comes_back_short_and_well_formed(notes: RequestNotes) -> None:
    error = Unprocessable("a" * 10**6 + "\ud800", code="invalid_value", field="\udc00" * 10**6)
    problem = document(respond(error, notes))
    assert len(problem["detail"]) == MAX_DETAIL
    assert len(problem["errors"][0]["field"]) <= MAX_FIELD * len("\\udc00")


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [("abc", 3, "abc"), ("abcd", 3, "ab…"), ("a\ud800", 3, "a\\ud800"), ("😀", 1, "😀")],
)
def test_shortened(text: str, limit: int, expected: str) -> None:
    assert shortened(text, limit) == expected


def test_what_the_framework_refuses_is_a_problem_too(notes: RequestNotes) -> None:
    error = HTTPException(405, headers={"Allow": "GET"})
    response = respond_http(error, notes, {"Allow": "GET, DELETE"})
    problem = document(response)
    assert response.headers.getlist("allow") == ["GET, DELETE"]
    assert (problem["status"], problem["code"]) == (405, "method_not_allowed")
    assert problem["title"] == "Method not allowed"


def test_routes_document_their_errors_and_the_unforeseen_one() -> None:
    documented = responses(NotFound, Unavailable)
    assert set(documented) == {404, 503, 500}
    assert "Retry-After" in documented[503]["headers"]
    assert "headers" not in documented[404]
    content = documented[404]["content"]["application/problem+json"]
    assert content == {"schema": {"$ref": "#/components/schemas/Problem"}}
