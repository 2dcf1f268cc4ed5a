from collections.abc import Iterator
from pathlib import Path

import pytest

from service.store import Store, open_store


# A store on PostgreSQL joins as pytest.param("postgres", marks=pytest.mark.postgres).
@pytest.fixture(params=["sqlite"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a store of each implementation can be opened; nothing is there yet."""
    return {"sqlite": f"sqlite:///{tmp_path}/data/store.sqlite"}[request.param]


@pytest.fixture
def store(location: str) -> Iterator[Store]:
    store = open_store(location)
    yield store
    store.close()
