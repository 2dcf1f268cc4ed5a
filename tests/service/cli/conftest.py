"""A server to talk to, whose model is a fake."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from service.app import create_app
from tests.support.edge import EdgeEngine, an_artefact, serving, settings_for, with_engine


@pytest.fixture
def engine() -> EdgeEngine:
    return EdgeEngine()


@pytest.fixture
def url(engine: EdgeEngine, tmp_path: Path) -> Iterator[str]:
    """A server with the task `trec`, of labels `no` and `yes`."""
    artefact = an_artefact("trec", labels=("no", "yes"))
    app = create_app(
        settings_for(tmp_path / "data", max_texts=50), build=with_engine(engine, [artefact])
    )
    # The server shares this process, and its log would be among what a command writes.
    with capture_logs(), serving(app) as address:
        yield address


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server like the one above for tests that only ask: to start and stop one takes longer."""
    folder = tmp_path_factory.mktemp("unchanged")
    artefact = an_artefact("trec", labels=("no", "yes"))
    app = create_app(
        settings_for(folder, max_texts=50), build=with_engine(EdgeEngine(), [artefact])
    )
    with capture_logs(), serving(app) as address:
        yield address


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A capsule file of the task `new`, of labels `a`, `b` and `c`."""
    path = tmp_path / "new.safetensors"
    path.write_bytes(an_artefact("new", labels=("a", "b", "c"), seed=1))
    return path


@pytest.fixture
def nowhere() -> str:
    """The URL of a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    return f"http://127.0.0.1:{port}"
