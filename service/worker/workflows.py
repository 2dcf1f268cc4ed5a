"""Durable workflows, on DBOS: a workflow is a run of a job, and its steps are the epochs.

What is queued, and what came of it, is the ledger's to say. DBOS hands a run to one process, knows
which steps it has behind it, and has a process that takes a dead one's slot go on with its runs.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Protocol, TypeVar

from dbos import DBOS, DBOSConfig, SetWorkflowID, error as faults
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from service.store.errors import StoreUnavailable
from service.worker.dispatch import Handed, Run

T = TypeVar("T")

APPLICATION = "capsule-worker"
VERSION = "1"
"""Of the order of the steps. Workflows of another version are left to processes of that version."""

WORKFLOW = "train"
QUEUE = "training"
POLL_S = 0.5
POOL_SIZE = 4

ATTEMPTS = 7
FIRST_WAIT_S = 1.0
"""Doubled for each further attempt of a step, so that the last begins after a minute."""

TIDIED = 1000
"""Workflows forgotten at once, at most."""

OVER = ["SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"]
WAITING = frozenset({"ENQUEUED", "DELAYED"})


class Step(Protocol):
    """Does a part of a run once.

    Where the run is taken up again, it gives back what the part gave before. A part that fails for
    want of the store is tried again for about a minute.
    """

    def __call__(self, name: str, part: Callable[[], T]) -> T:
        """Do a part, whose result must be made of plain values, or give back what it gave.

        Raises:
            StoreUnavailable: the store was not there for a minute.
        """
        ...


class WorkflowsUnavailable(Exception):  # noqa: N818 - says what is the case
    """The database of the workflows cannot be used; the text says why, and what to do."""


class Workflows:
    """The process's executor; there is one, as DBOS keeps its state in the interpreter.

    Args:
        database: URL of its database; made where it is missing.
        slot: name of the process's slot, whose runs it goes on with.
        concurrency: runs that it works on at once.
        work: does one run of a job, step by step.
    """

    def __init__(
        self, database: str, slot: str, concurrency: int, work: Callable[[str, int, Step], None]
    ) -> None:
        self.database = database
        self.slot = slot
        self.concurrency = concurrency

        def train(job: str, run: int) -> None:
            work(job, run, step)

        # Losses are counted by the ledger, which also knows when a job was resumed.
        self.workflow = DBOS.workflow(name=WORKFLOW, max_recovery_attempts=None)(train)

    def launch(self) -> None:
        """Begin to work, with what earlier processes in this slot left behind.

        Raises:
            WorkflowsUnavailable: the database cannot be used.
        """
        # With a handler of its own, DBOS leaves its records to the handlers of the root.
        dbos_logger = logging.getLogger("dbos")
        if not dbos_logger.handlers:
            dbos_logger.addHandler(logging.NullHandler())
        try:
            DBOS(config=configuration(self.database, self.slot))
            DBOS.launch()
            DBOS.register_queue(
                QUEUE,
                worker_concurrency=self.concurrency,
                polling_interval_sec=POLL_S,
                on_conflict="always_update",
            )
        except (faults.DBOSException, SQLAlchemyError, OSError, AssertionError) as error:
            raise WorkflowsUnavailable(
                f"the workflows' database {shown(self.database)} cannot be used: {reason(error)}; "
                "check CAPSULE_TRAIN_DATABASE and what it points at"
            ) from error

    def close(self) -> None:
        """Stop taking up runs; one that is being worked on is left behind."""
        DBOS.destroy(destroy_registry=True)

    def known(self, runs: Collection[Run]) -> Mapping[Run, Handed]:
        """See `Executor.known`."""
        by_id = {workflow_id(run): run for run in runs}
        found = DBOS.list_workflows(workflow_ids=list(by_id), load_input=False, load_output=False)
        return {
            by_id[one.workflow_id]: handed(
                one.status, one.dequeued_at, one.updated_at, here=one.executor_id == self.slot
            )
            for one in found
        }

    def hand_over(self, run: Run) -> None:
        """See `Executor.hand_over`."""
        with SetWorkflowID(workflow_id(run)):
            DBOS.enqueue_workflow(QUEUE, self.workflow, *run)

    def forget(self, run: Run) -> None:
        """See `Executor.forget`."""
        DBOS.delete_workflow(workflow_id(run))

    def tidy(self, before: datetime) -> None:
        """Forget what was over before a moment."""
        over = DBOS.list_workflows(
            status=OVER,
            completed_before=before.isoformat(),
            limit=TIDIED,
            load_input=False,
            load_output=False,
        )
        if over:
            DBOS.delete_workflows([one.workflow_id for one in over])


def step(name: str, part: Callable[[], T]) -> T:
    """See `Step`."""
    try:
        return DBOS.run_step(
            {
                "name": name,
                "retries_allowed": True,
                "max_attempts": ATTEMPTS,
                "interval_seconds": FIRST_WAIT_S,
                "backoff_rate": 2.0,
                "should_retry": lambda error: isinstance(error, StoreUnavailable),
            },
            part,
        )
    except faults.DBOSMaxStepRetriesExceeded as error:
        raise error.errors[-1] from error


def configuration(database: str, slot: str) -> DBOSConfig:
    """How DBOS runs: nothing leaves the process but what goes to the database."""
    return DBOSConfig(
        name=APPLICATION,
        system_database_url=database,
        sys_db_pool_size=POOL_SIZE,
        application_version=VERSION,
        executor_id=slot,
        log_level="WARNING",
        enable_otlp=False,
    )


def workflow_id(run: Run) -> str:
    """What DBOS calls a run."""
    job, number = run
    return f"{job}.{number}"


def handed(status: str, taken_ms: int | None, changed_ms: int | None, *, here: bool) -> Handed:
    """A workflow's status in the dispatcher's words."""
    if status in WAITING:
        return Handed("waiting", moment(changed_ms))
    if status == "PENDING":
        return Handed("taken", moment(taken_ms), here)
    return Handed("over", moment(changed_ms))


def moment(milliseconds: int | None) -> datetime:
    """A time as DBOS tells it; long ago where it does not."""
    return datetime.fromtimestamp((milliseconds or 0) / 1000, UTC)


def shown(database: str) -> str:
    """A database's URL without its password."""
    try:
        return make_url(database).render_as_string(hide_password=True)
    except ArgumentError:
        return "(not a URL)"


def reason(error: Exception) -> str:
    """The first line of what went wrong."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
