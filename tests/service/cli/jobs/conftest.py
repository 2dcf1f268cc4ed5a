"""The server's jobs, which a test works on as a worker does."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.jobs.ledger import Ledger
from service.jobs.sql import open_ledger
from service.store import open_store
from tests.support.toy_rows import toy_file


@pytest.fixture
def ledger(url: str, tmp_path: Path) -> Iterator[Ledger]:
    """The ledger of the server, opened once more as from another process."""
    store = open_store(tmp_path / "data")
    yield open_ledger(store)
    store.close()


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """A file of rows under three labels."""
    return toy_file(tmp_path)
