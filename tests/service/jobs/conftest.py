from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from service.jobs.sql import SqlLedger
from service.jobs.tables import JobRow
from service.store.sqlite import SqliteStore
from tests.service.jobs.samples import Clock
from tests.support.stores import empty_database, hasty_store


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database for all tests."""
    return empty_database(tmp_path_factory.mktemp("jobs"))


@pytest.fixture(scope="session")
def stores(database: Path) -> Iterator[tuple[SqliteStore, SqliteStore]]:
    """Two stores on one database, as two processes have them."""
    with (
        closing(hasty_store(database, Clock())) as store,
        closing(hasty_store(database, Clock())) as other,
    ):
        yield store, other


def emptied(stores: tuple[SqliteStore, SqliteStore], clock: Clock) -> tuple[SqlLedger, SqlLedger]:
    """The ledgers of two stores on one database, with nothing in it."""
    for store in stores:
        store.clock = clock
    with stores[0].writing() as session:
        for table in reversed(JobRow.metadata.sorted_tables):
            session.execute(table.delete())
    return SqlLedger(stores[0]), SqlLedger(stores[1])


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledgers(stores: tuple[SqliteStore, SqliteStore], clock: Clock) -> tuple[SqlLedger, SqlLedger]:
    """Two ledgers on one database with nothing in it."""
    return emptied(stores, clock)


@pytest.fixture
def ledger(ledgers: tuple[SqlLedger, SqlLedger]) -> SqlLedger:
    return ledgers[0]


@pytest.fixture
def other(ledgers: tuple[SqlLedger, SqlLedger]) -> SqlLedger:
    return ledgers[1]
