import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from capsules.backbones.base import LoadedBackbone
from capsules.backbones.load import load
from service.jobs.records import Claim, Job
from service.jobs.sql import SqlLedger
from service.store.sqlite import SqliteStore
from tests.service.worker.samples import submitted
from tests.support.backbones import save_tiny_bert
from tests.support.stores import empty_database, hasty_store

TOKEN = "token"


@pytest.fixture(scope="session")
def backbone_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_bert(tmp_path_factory.mktemp("tiny-bert"))


@pytest.fixture(scope="session")
def tiny(backbone_folder: Path) -> LoadedBackbone:
    return load(str(backbone_folder), device="cpu", dtype="float32")


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return empty_database(tmp_path_factory.mktemp("migrated"))


@pytest.fixture
def store(migrated: Path, tmp_path: Path) -> Iterator[SqliteStore]:
    shutil.copy(migrated, tmp_path)
    with closing(hasty_store(tmp_path / migrated.name)) as opened:
        yield opened


@pytest.fixture
def ledger(store: SqliteStore) -> SqlLedger:
    return SqlLedger(store)


Submit = Callable[..., Job]
Begin = Callable[..., tuple[Claim, Job]]


@pytest.fixture
def submit(ledger: SqlLedger) -> Submit:
    """Queues a job; see `submitted`."""

    def call(**given: Any) -> Job:
        return submitted(ledger, **given)

    return call


@pytest.fixture
def begin(ledger: SqlLedger, submit: Submit) -> Begin:
    """Queues a job and takes it up, in `worker-1`."""

    def call(**given: Any) -> tuple[Claim, Job]:
        ledger.take_slot(TOKEN, "host", 1, ())
        job = submit(**given)
        claim = Claim(job.id, job.run, TOKEN)
        return claim, ledger.start(claim, "worker-1")

    return call
