"""A worker: a slot, a heartbeat, and jobs from the queue to their end."""

import time
from collections.abc import Callable
from datetime import timedelta
from importlib import import_module
from threading import Lock

import structlog
from sqlalchemy import URL
from sqlalchemy.exc import SQLAlchemyError

from service.jobs.ledger import Ledger
from service.jobs.slots import stale_before
from service.settings import Settings
from service.store.base import Store
from service.store.errors import StoreError
from service.store.sql import utc_now
from service.worker.claims import Claims
from service.worker.dispatch import Dispatcher
from service.worker.ending import ANEW, FAILURE, Ending, repeat
from service.worker.heart import BEAT_S, Heart
from service.worker.identity import Identity, vacant
from service.worker.runner import Runner, Trains
from service.worker.workflows import Workflows

LOOK_S = 0.5
"""How often the queue is looked at."""

TIDY_S = 3600.0
REMEMBERED = timedelta(days=1)
"""How long workflows are kept that are over."""

DATABASE_NAME = "workflows.sqlite"
"""The file of the workflows in the data directory."""

logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)


class Worker:
    """Works in one slot until told to stop.

    Args:
        settings: of the deployment.
        ledger: the jobs.
        store: the capsules.
        identity: the process.
        ending: of the process, which the worker may bring about.
        trainer: makes what trains, for the first job; by default one that loads the backbone.
    """

    def __init__(
        self,
        settings: Settings,
        ledger: Ledger,
        store: Store,
        identity: Identity,
        ending: Ending,
        trainer: Callable[[], Trains] | None = None,
    ) -> None:
        self.settings = settings
        self.ledger = ledger
        self.store = store
        self.identity = identity
        self.ending = ending
        self.make_trainer = trainer or self.load_trainer
        self.lock = Lock()
        self.trains: Trains | None = None
        self.claims = Claims(identity.token)
        self.heart = Heart(ledger, self.claims, utc_now)
        self.workflows: Workflows | None = None

    def start(self) -> None:
        """Take a slot, go on with what its last holder left, and look for more.

        Raises:
            StoreError: the ledger cannot be used.
            WorkflowsUnavailable: the database of the workflows cannot be.
        """
        slots = self.ledger.slots()
        free = vacant(slots, self.identity.place, stale_before(utc_now()))
        slot = self.ledger.take_slot(
            self.identity.token, self.identity.host, self.identity.pid, free
        )
        # From here on the slot has to be kept, and released at the end.
        repeat("heart", BEAT_S, self.beat, self.ending)
        concurrency = self.settings.train_concurrency
        runner = Runner(
            self.ledger, self.claims, slot.name, self.trainer, time.sleep, self.begin_anew
        )
        self.workflows = Workflows(database(self.settings), slot.name, concurrency, runner.run)
        self.workflows.launch()
        dispatcher = Dispatcher(self.ledger, self.workflows, self.claims, concurrency, utc_now)
        repeat("dispatcher", LOOK_S, tolerant(dispatcher.dispatch), self.ending)
        repeat("tidier", TIDY_S, tolerant(self.tidy), self.ending)
        logger.info("worker_ready", slot=slot.name, concurrency=concurrency)

    def stop(self) -> None:
        """Give the slot back, with the jobs; what runs for them yet is void."""
        try:
            self.ledger.release_slot(self.identity.token)
        except StoreError as error:
            # Others will find it stale.
            logger.warning("slot_not_released", reason=str(error))

    def beat(self) -> None:
        """Beat once, and end where the slot is lost."""
        if not self.heart.beat():
            logger.error("slot_lost", remedy="another worker has it; a new process takes a new one")
            self.ending.ask(FAILURE)

    def begin_anew(self) -> None:
        """Begin again after a lack of memory, where it is limited.

        What was allocated is free, and counts towards the limit for as long as the process lives: the
        next job, however small, might not fit beside it.
        """
        if self.settings.train_memory is not None:
            logger.warning("worker_begins_anew", reason="a job took all the memory there is")
            self.ending.ask(ANEW)

    def tidy(self) -> None:
        """Forget workflows that were over long ago."""
        assert self.workflows is not None, "tidied once it is launched"
        self.workflows.tidy(utc_now() - REMEMBERED)

    def trainer(self) -> Trains:
        """What trains, made for the first job."""
        with self.lock:
            if self.trains is None:
                self.trains = self.make_trainer()
            return self.trains

    def load_trainer(self) -> Trains:
        """Bring torch into the process, which takes hundreds of megabytes, once it has a job."""
        module = import_module("service.worker.trainer")
        trains: Trains = module.trainer_for(self.settings, self.ledger, self.store)
        return trains


def database(settings: Settings) -> str:
    """URL of the database of the workflows."""
    if settings.train_database is not None:
        return settings.train_database
    path = settings.data_dir.absolute() / DATABASE_NAME
    return URL.create("sqlite", database=str(path)).render_as_string()


def tolerant(action: Callable[[], None]) -> Callable[[], None]:
    """Do something, or have the log say that a database was not there for it."""

    def attempt() -> None:
        try:
            action()
        except (StoreError, SQLAlchemyError) as error:
            logger.warning("database_unavailable", reason=str(error))

    return attempt
