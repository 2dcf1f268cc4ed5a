from pathlib import Path
from typing import Any

import jsonschema
import pytest

from capsules import release
from service.api.classify.schemas import EXAMPLES
from service.app import create_app
from tests.support.edge import settings_for


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return create_app(settings_for(tmp_path_factory.mktemp("unused"))).openapi()


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


def accepts(document: dict[str, Any], name: str, value: Any) -> bool:
    schema = {
        "$ref": f"#/components/schemas/{name}",
        "components": document["components"],
    }
    return jsonschema.Draft202012Validator(schema).is_valid(value)


def test_all_routes_are_documented(document: dict[str, Any]) -> None:
    assert {(method, path) for path, method, _ in operations(document)} == {
        ("post", "/v1/classify"),
        ("post", "/v1/capsules"),
        ("get", "/v1/capsules"),
        ("get", "/v1/capsules/{task}"),
        ("delete", "/v1/capsules/{task}"),
        ("get", "/v1/capsules/{task}/versions/{version}"),
        ("delete", "/v1/capsules/{task}/versions/{version}"),
        ("get", "/v1/capsules/{task}/versions/{version}/artefact"),
        ("put", "/v1/capsules/{task}/aliases/{alias}"),
        ("delete", "/v1/capsules/{task}/aliases/{alias}"),
        ("post", "/v1/admin/training/jobs"),
        ("get", "/v1/admin/training/jobs"),
        ("get", "/v1/admin/training/jobs/{job}"),
        ("delete", "/v1/admin/training/jobs/{job}"),
        ("get", "/v1/admin/training/jobs/{job}/events"),
        ("post", "/v1/admin/training/jobs/{job}/cancel"),
        ("post", "/v1/admin/training/jobs/{job}/resume"),
        ("get", "/v1/models"),
        ("get", "/v1/backbone"),
        ("get", "/livez"),
        ("get", "/readyz"),
        ("get", "/metrics"),
    }


def test_every_failure_is_documented_as_a_problem(document: dict[str, Any]) -> None:
    for path, _, operation in operations(document):
        assert operation["summary"]
        responses = operation["responses"]
        assert "500" in responses
        assert ("503" in responses) or path == "/metrics"
        for status, response in responses.items():
            if status >= "400":
                assert response["content"] == {
                    "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
                }, (path, status)
        if "requestBody" in operation:
            assert {"400", "413", "415", "422"} <= set(responses), path


def test_nothing_refers_to_what_is_not_there(document: dict[str, Any]) -> None:
    def references(value: Any) -> list[str]:
        if isinstance(value, dict):
            own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
            return own + [ref for child in value.values() for ref in references(child)]
        if isinstance(value, list):
            return [ref for child in value for ref in references(child)]
        return []

    found = references(document)
    assert len(found) > 50
    names = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert set(found) <= names
    assert "HTTPValidationError" not in document["components"]["schemas"]


def test_the_examples_are_what_the_schema_takes(document: dict[str, Any]) -> None:
    for example in EXAMPLES.values():
        assert accepts(document, "ClassifyRequest", example["value"]), example


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"task": "a"},
        {"task": "a", "text": "x", "model": "b"},
        {"task": "a", "text": "x", "inputs": []},
        {"task": "a", "tasks": ["b"], "text": "x"},
        {"task": "a", "text": []},
        {"task": "a", "text": [1]},
        {"task": "a", "text": "x", "explain": True},
        {"task": None, "inputs": [{"task": "a", "text": "x"}]},
    ],
)
def test_the_schema_refuses_what_the_server_refuses(
    document: dict[str, Any], body: dict[str, Any]
) -> None:
    assert not accepts(document, "ClassifyRequest", body)


def test_making_the_document_touches_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    app = create_app(settings_for(folder))
    assert app.openapi() is app.openapi()
    assert not folder.exists()


def test_a_server_that_is_not_installed_has_no_release(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "DISTRIBUTION", "no-such-distribution")
    assert release.release() == "unknown"
    monkeypatch.setattr(release, "DISTRIBUTION", "pytest")
    assert release.release()[0].isdigit()
