import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from capsules.backbones.base import LoadedBackbone
from service.registry.registry import Registry
from service.store import Store, open_store
from tests.service.registry.samples import blank
from tests.support.backbones import tiny_bert
from tests.support.claimed import INFO
from tests.support.fake_engine import FakeEngine


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A data directory with an empty store."""
    return shutil.copytree(blank(), tmp_path / "data")


@pytest.fixture
def store(data_dir: Path) -> Iterator[Store]:
    store = open_store(data_dir)
    yield store
    store.close()


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
async def registry(store: Store, engine: FakeEngine) -> Registry:
    registry = Registry(store, engine, INFO)
    await registry.load()
    return registry


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> LoadedBackbone:
    """A random BERT, small enough for a forward pass to take no time."""
    return tiny_bert(tmp_path_factory.mktemp("tiny"))
