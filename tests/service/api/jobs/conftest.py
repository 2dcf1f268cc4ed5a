from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from fastapi import FastAPI

from service.app import create_app
from service.jobs.ledger import Ledger
from service.state import Live
from tests.service.api.jobs.samples import make_hasty
from tests.support.edge import EdgeEngine, serving, settings_for, with_engine
from tests.support.rehearsals import FakeRehearsal


@dataclass(frozen=True)
class Site:
    """A server without a model.

    Attributes:
        app: what is served.
        url: where.
        folder: its data.
        engine: its engine, which has its rehearsal.
    """

    app: FastAPI
    url: str
    folder: Path
    engine: EdgeEngine

    @property
    def live(self) -> Live:
        live: Live = self.app.state.live
        return live

    @property
    def ledger(self) -> Ledger:
        """What a worker would write to."""
        assert self.live.warm is not None
        return self.live.warm.jobs.ledger


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("jobs")
    engine = EdgeEngine()
    settings = settings_for(
        folder, max_dataset_bytes=100_000, max_dataset_rows=500, max_body_bytes=50_000
    )
    app = create_app(settings, build=with_engine(engine))
    with serving(app) as url:
        site = Site(app, url, folder, engine)
        make_hasty(site.ledger)
        yield site


@pytest.fixture
def rehearsal(site: Site) -> FakeRehearsal:
    site.engine.rehearsal.failure = None
    return site.engine.rehearsal


@pytest.fixture
def client(site: Site, rehearsal: FakeRehearsal) -> Iterator[httpx2.Client]:
    """A client of the server."""
    with httpx2.Client(base_url=site.url, timeout=20) as client:
        yield client


@pytest.fixture
def ledger(site: Site) -> Ledger:
    return site.ledger
