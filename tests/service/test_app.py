from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from service.app import create_app
from tests.support.edge import EdgeEngine, a_problem, client_of, settings_for, with_engine


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    app = create_app(settings_for(tmp_path_factory.mktemp("app")), build=with_engine(EdgeEngine()))
    with client_of(app) as client:
        yield client


@pytest.mark.parametrize(
    "path",
    ["/", "/v1", "/v1/classify/", "/v1/nothing", "/%00", "/v1/capsules/../x", "//", "/redoc"],
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


def test_the_document_and_its_page_are_served(client: TestClient) -> None:
    assert client.get("/openapi.json").json()["info"]["title"] == "Capsule server"
    assert "swagger" in client.get("/docs").text


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
