"""Does one run of a job from start to end, whatever comes in between."""

from collections.abc import Callable
from typing import Protocol, TypeVar

import structlog

from capsules.errors import TrainingFault
from service.errors import NotFound
from service.jobs.ledger import ClaimVoid, Ledger
from service.jobs.records import Claim, Job
from service.store.errors import StoreUnavailable
from service.worker.claims import Claims
from service.worker.failures import failure
from service.worker.resources import give_memory_back
from service.worker.workflows import Step

T = TypeVar("T")

FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 10.0

logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)


class Trains(Protocol):
    """Trains jobs."""

    def train(self, claim: Claim, job: Job, step: Step) -> None:
        """Train a job from its last finished epoch to its registered version.

        Raises:
            ClaimVoid: it is this worker's no longer.
            Exception: it cannot be done, see `failure`.
        """
        ...


class Runner:
    """What a workflow does.

    Args:
        ledger: says whether a job is to be done, and hears how it ended.
        claims: what this process works on.
        worker: name of the process's slot.
        trainer: gives what trains; called for every run, so that the first loads it.
        wait: sleeps for seconds between attempts to reach the ledger.
        exhausted: is called after a job has failed for want of memory.
    """

    def __init__(
        self,
        ledger: Ledger,
        claims: Claims,
        worker: str,
        trainer: Callable[[], Trains],
        wait: Callable[[float], None],
        exhausted: Callable[[], None] = lambda: None,
    ) -> None:
        self.ledger = ledger
        self.claims = claims
        self.worker = worker
        self.trainer = trainer
        self.wait = wait
        self.exhausted = exhausted

    def run(self, job_id: str, run: int, step: Step) -> None:
        """Do a run of a job, or leave it if it is not this worker's to do.

        Starting is no step: each process that takes the run up has to do it itself.
        """
        with (
            self.claims.hold(job_id, run) as claim,
            structlog.contextvars.bound_contextvars(job=job_id, run=run),
        ):
            try:
                self.do(claim, step)
            except ClaimVoid as error:
                logger.info("job_dropped", reason=str(error))
            # Only now nothing refers to it any more.
            give_memory_back()

    def do(self, claim: Claim, step: Step) -> None:
        """Do a job to its end, whatever that is.

        Raises:
            ClaimVoid: it is this worker's no longer.
        """
        job = self.insist(lambda: self.ledger.start(claim, self.worker))
        logger.info("job_started", task=job.spec.task, epochs=len(job.epochs))
        try:
            self.trainer().train(claim, job, step)
        except Exception as error:  # noqa: BLE001 - whatever ends a job, its owner is told
            self.end(claim, error)
        else:
            logger.info("job_succeeded")

    def end(self, claim: Claim, error: Exception) -> None:
        """Have a job fail with what ended it.

        Raises:
            ClaimVoid: it is this worker's no longer, which may be what ended it.
        """
        if isinstance(error, ClaimVoid):
            raise error
        if isinstance(error, NotFound):
            raise ClaimVoid(str(error)) from error
        why = failure(error, claim.job)
        logger.warning("job_failed", code=why.code, reason=why.message)
        self.insist(lambda: self.ledger.fail(claim, why))
        if why.code == TrainingFault.OUT_OF_MEMORY:
            self.exhausted()

    def insist(self, action: Callable[[], T]) -> T:
        """Do what must be done until the ledger can be reached.

        Should the process lose its slot over it, it is ended; see `Heart`.
        """
        pause = FIRST_WAIT_S
        while True:
            try:
                return action()
            except StoreUnavailable as error:
                logger.warning("ledger_unavailable", reason=str(error), again_in_s=pause)
            self.wait(pause)
            pause = min(2 * pause, LONGEST_WAIT_S)
