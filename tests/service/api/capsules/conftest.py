from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.service.api.conftest import an_edge


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[TestClient]:
    """A server of the test's own, whose capsules it may change."""
    with an_edge(tmp_path) as (client, _):
        yield client
