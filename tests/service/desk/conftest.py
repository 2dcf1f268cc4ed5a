import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from service.desk.desk import Desk
from service.jobs.sql import SqlLedger
from tests.service.jobs.samples import Clock
from tests.support.rehearsals import FakeRehearsal
from tests.support.row_files import LIMIT
from tests.support.stores import empty_database, hasty_store


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return empty_database(tmp_path_factory.mktemp("desk"))


@pytest.fixture
def ledger(empty: Path, tmp_path: Path, clock: Clock) -> Iterator[SqlLedger]:
    shutil.copy(empty, tmp_path)
    with closing(hasty_store(tmp_path / empty.name, clock, patience_s=0.2)) as store:
        yield SqlLedger(store)


@pytest.fixture
def rehearsal() -> FakeRehearsal:
    return FakeRehearsal()


class RecordingShelf:
    """Remembers what it was to have."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    async def refresh(self, task: str, version: int) -> None:
        self.asked.append((task, version))


@pytest.fixture
def shelf() -> RecordingShelf:
    return RecordingShelf()


@pytest.fixture
def desk(
    ledger: SqlLedger, rehearsal: FakeRehearsal, shelf: RecordingShelf, tmp_path: Path
) -> Iterator[Desk]:
    desk = Desk(
        ledger,
        rehearsal,
        shelf,
        folder=tmp_path,
        max_bytes=LIMIT,
        max_rows=1000,
        max_streams=2,
        check_wait_s=0.05,
    )
    with closing(desk):
        yield desk
