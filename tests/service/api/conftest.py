from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from service.app import create_app
from tests.support.edge import EdgeEngine, an_artefact, client_of, settings_for, with_engine

Edge = tuple[TestClient, EdgeEngine]


@contextmanager
def an_edge(folder: Path) -> Iterator[Edge]:
    """A server with the tasks `trec` (labels no, yes), `sms` (three) and `nli` (two inputs)."""
    engine = EdgeEngine()
    artefacts = [
        an_artefact("trec", labels=("no", "yes")),
        an_artefact("sms", labels=3),
        an_artefact("nli", template="{premise} [and] {hypothesis}"),
    ]
    settings = settings_for(
        folder, max_texts=8, max_characters=100, max_body_bytes=4096, max_artefact_bytes=4096
    )
    with client_of(create_app(settings, build=with_engine(engine, artefacts))) as client:
        yield client, engine


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edge]:
    with an_edge(tmp_path_factory.mktemp("edge")) as edge:
        yield edge


@pytest.fixture
def engine(edge: Edge) -> EdgeEngine:
    """The server's engine, as good as new."""
    _, engine = edge
    engine.result = engine.failure = engine.row_failure = None
    engine.healthy = True
    engine.gate.set()
    return engine


@pytest.fixture
def client(edge: Edge, engine: EdgeEngine) -> TestClient:
    return edge[0]
