from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from structlog.testing import capture_logs

from service.app import create_app
from tests.support.edge import EdgeEngine, a_problem, client_of, settings_for, with_engine


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    app = create_app(settings_for(tmp_path_factory.mktemp("app")), build=with_engine(EdgeEngine()))
    with client_of(app) as client:
        yield client


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/v1",
        "/v1/classify/",
        "/v1/nothing",
        "/%00",
        "/v1/capsules/../x",
        "//",
        "/redoc",
        "/docs/",
    ],
)
def test_unknown_paths_are_problems(client: TestClient, path: str) -> None:
    a_problem(client.get(path), 404, "path_not_found")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/classify", "POST"),
        ("PATCH", "/v1/capsules", "GET, POST"),
        ("POST", "/v1/capsules/trec", "GET, DELETE"),
        ("POST", "/v1/capsules/trec/versions/1", "GET, DELETE"),
        ("PUT", "/v1/capsules/trec/versions/1/artefact", "GET"),
        ("GET", "/v1/capsules/trec/aliases/prod", "PUT, DELETE"),
        ("OPTIONS", "/v1/models", "GET"),
        ("DELETE", "/livez", "GET"),
        ("BREW", "/metrics", "GET"),
    ],
)
def test_other_methods_are_problems_that_name_the_right_ones(
    client: TestClient, method: str, path: str, allowed: str
) -> None:
    response = client.request(method, path)
    a_problem(response, 405, "method_not_allowed")
    assert response.headers["allow"] == allowed


def test_the_document_is_served(client: TestClient) -> None:
    assert client.get("/openapi.json").json()["info"]["title"] == "Capsule server"


def test_the_unforeseen_is_a_problem(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    live = client.app.state.live  # type: ignore[attr-defined]

    async def broken(*_: object) -> None:
        raise RuntimeError("the password is swordfish")

    monkeypatch.setattr(live.warm.registry, "list_tasks", broken)
    response = client.get("/v1/capsules")
    a_problem(response, 500, "internal_error")
    assert "swordfish" not in response.text
    monkeypatch.undo()
    assert client.get("/v1/capsules").status_code == 200


def test_an_app_can_be_started_again(tmp_path: Path) -> None:
    app = create_app(settings_for(tmp_path), build=with_engine(EdgeEngine()))
    for _ in range(2):
        with client_of(app) as client:
            assert client.get("/readyz").status_code == 200
        assert app.state.live.phase == "draining"
        assert app.state.live.warm is None


@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "route"),
    [
        ("POST", "/v1/classify", {"Content-Length": str(10**9)}, 413, "/v1/classify"),
        ("POST", "/v1/capsules", {"Content-Length": str(10**9)}, 413, "/v1/capsules"),
        ("POST", "/v1/classify", {"Content-Type": "text/plain"}, 415, "/v1/classify"),
        ("GET", "/v1/capsules/trec/versions/x", {}, 422, "/v1/capsules/{task}/versions/{version}"),
        ("PUT", "/v1/models", {}, 405, "/v1/models"),
        ("GET", "/v1/nothing", {}, 404, None),
    ],
)
def test_an_error_is_logged_and_counted_under_its_route(
    client: TestClient,
    method: str,
    path: str,
    headers: dict[str, str],
    status: int,
    route: str | None,
) -> None:
    metrics = client.app.state.live.metrics  # type: ignore[attr-defined]

    def count() -> float:
        labels = {"route": route or "unmatched"}
        name = "capsule_request_duration_seconds_count"
        return metrics.registry.get_sample_value(name, labels) or 0.0

    before = count()
    with capture_logs() as logs:
        assert client.request(method, path, headers=headers, content=b"{}").status_code == status
    (line,) = logs
    assert (line["event"], line["route"], line["status"]) == ("request", route, status)
    assert count() == before + 1
