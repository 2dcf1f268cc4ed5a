import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from service.app import create_app
from service.metrics import Metrics
from service.settings import Settings
from service.state import Warm
from tests.support.edge import EdgeEngine, a_problem, settings_for


def test_a_ready_server_is_alive_and_ready(client: TestClient) -> None:
    for path in ("/livez", "/readyz"):
        response = client.get(path)
        assert (response.status_code, response.json()) == (200, {"status": "ok"})


def test_metrics_are_prometheus_text(client: TestClient) -> None:
    response = client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=")
    names = {family.name for family in text_string_to_metric_families(response.text)}
    assert {"capsule_requests", "capsule_queue_depth", "capsule_capsules_loaded"} <= names


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
def test_a_dead_model_fails_both(client: TestClient, engine: EdgeEngine, path: str) -> None:
    engine.healthy = False
    response = client.get(path)
    a_problem(response, 503, "engine_stopped")
    assert int(response.headers["retry-after"]) > 0
    classify = client.post("/v1/classify", json={"task": "trec", "text": "a"})
    a_problem(classify, 503, "engine_stopped")


def test_a_server_that_warms_up_is_alive_and_serves_nothing(tmp_path: Path) -> None:
    @asynccontextmanager
    async def build(settings: Settings, metrics: Metrics) -> AsyncIterator[Warm]:
        await asyncio.Event().wait()
        yield  # type: ignore[misc]

    with TestClient(create_app(settings_for(tmp_path), build=build)) as client:
        assert client.get("/livez").status_code == 200
        assert client.get("/metrics").status_code == 200
        for method, path in (
            ("GET", "/readyz"),
            ("GET", "/v1/models"),
            ("GET", "/v1/backbone"),
            ("GET", "/v1/capsules"),
            ("GET", "/v1/capsules/trec"),
            ("DELETE", "/v1/capsules/trec"),
            ("POST", "/v1/capsules"),
            ("POST", "/v1/classify"),
        ):
            response = client.request(method, path)
            a_problem(response, 503, "warming")
            assert int(response.headers["retry-after"]) > 0


def test_a_server_that_drains_is_alive_and_not_ready(client: TestClient) -> None:
    live = client.app.state.live  # type: ignore[attr-defined]
    live.drain()
    try:
        a_problem(client.get("/readyz"), 503, "draining")
        assert client.get("/livez").status_code == 200
    finally:
        live.phase = "ready"
