"""Where training jobs are taken in and asked about."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ParamSpec, TypeVar

import structlog
from pydantic import ValidationError

from capsules.artefact.manifest import MAX_LABELS
from capsules.errors import ArtefactError, CapsuleError
from capsules.template import Template
from service.desk.ports import Rehearsal, Shelf
from service.desk.refusals import refusal, rehearsal_failed
from service.desk.submission import Submission
from service.errors import ServiceError, Unavailable, from_capsule_error
from service.jobs.intake.apart import Examination
from service.jobs.intake.records import Demands, Findings, Refused
from service.jobs.intake.spool import Spool
from service.jobs.ledger import Ledger
from service.jobs.records import DataFile, Job, Split
from service.jobs.spec import JobSpec
from service.registry.cancellation import finish
from service.registry.lanes import Lane
from service.registry.storage import stored

P = ParamSpec("P")
T = TypeVar("T")

READERS = 4
CHECKERS = 2
"""Submissions whose rows are checked at the same time."""

SPOOLERS = 4
"""Threads that write what is received to disk."""

PATIENCE_S = 10.0
"""How long a change of a job waits for those ahead of it."""

CHECK_WAIT_S = 30.0
"""How long a submission waits for those ahead of it."""

CHECK_LIMIT_S = 600.0
"""How long the rows of one submission may be checked."""

MAX_STREAMS = 64
"""Streams of events that are open at the same time."""

RETRY_AFTER_S = 5

logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)


class Desk:
    """Takes in submissions, and passes on what is asked of the ledger, in threads of its own.

    A job is not acknowledged before its rows were read and its options rehearsed. Until then it is
    in the ledger as one that is being validated, so that its key cannot be used twice; whatever
    comes between, it is forgotten again.

    Attributes:
        ledger: keeps the jobs.
        folder: on whose disk rows are received.
        max_bytes: most bytes of a file of rows, also once it is unpacked.
        streams: how many streams of events are open.
    """

    def __init__(
        self,
        ledger: Ledger,
        rehearsal: Rehearsal,
        shelf: Shelf,
        *,
        folder: Path,
        max_bytes: int,
        max_rows: int,
        max_streams: int = MAX_STREAMS,
        check_wait_s: float = CHECK_WAIT_S,
    ) -> None:
        """Open for business.

        Args:
            ledger: keeps the jobs.
            rehearsal: refuses what the loaded backbone could not serve.
            shelf: has the versions that jobs came to.
            folder: on whose disk rows are received.
            max_bytes: most bytes of a file of rows, also once it is unpacked.
            max_rows: most rows of a file.
            max_streams: most streams of events at the same time.
            check_wait_s: how long a submission waits for those ahead of it.
        """
        self.ledger = ledger
        self.rehearsal = rehearsal
        self.shelf = shelf
        self.folder = folder
        self.max_bytes = max_bytes
        self.max_rows = max_rows
        self.max_streams = max_streams
        self.check_wait_s = check_wait_s
        self.streams = 0
        self.reading = Lane("jobs-read", READERS)
        self.writing = Lane("jobs-write", 1)
        self.checking = Lane("rows-check", CHECKERS)
        self.spooling = Lane("rows-write", SPOOLERS)

    def close(self) -> None:
        """Let all threads end."""
        for lane in (self.reading, self.writing, self.checking, self.spooling):
            lane.close()

    # --- the ledger's methods -----------------------------------------------------------------

    async def ask(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a method of the ledger that reads.

        Raises:
            ServiceError: what the method raises, or the failure of the database.
        """
        return await stored(self.reading, until(PATIENCE_S), call, *args, **kwargs)

    async def get(self, job: str) -> Job:
        """A job; nobody is told of a version of it that this server does not have yet.

        Raises:
            NotFound: `job_not_found`.
            ServiceError: the failure of the database.
        """
        found = await self.ask(self.ledger.get, job)
        if found.result is not None:
            await self.shelf.refresh(found.result.task, found.result.version)
        return found

    async def change(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a method of the ledger that writes.

        Raises:
            ServiceError: what the method raises, or the failure of the database.
        """
        return await stored(self.writing, until(PATIENCE_S), call, *args, **kwargs)

    @contextmanager
    def streaming(self) -> Iterator[None]:
        """Hold one of the places for streams of events.

        Raises:
            Unavailable: `too_many_streams`.
        """
        if self.streams >= self.max_streams:
            raise Unavailable(
                f"{self.max_streams} streams of events are open, the most at the same time; try "
                "again shortly, or ask for pages of events.",
                code="too_many_streams",
                retry_after=RETRY_AFTER_S,
            )
        self.streams += 1
        try:
            yield
        finally:
            self.streams -= 1

    # --- submissions ----------------------------------------------------------------------------

    async def spool(self, field: str) -> Spool:
        """A file for rows to be received in.

        Raises:
            Unavailable: `disk_full`.
        """
        making = self.spooling.run(None, Spool, field, self.folder, self.max_bytes)
        return await finish(making, undo=Spool.close)

    async def release(self, spool: Spool) -> None:
        """Give the space of a file back, which may take a while if it is large."""
        await finish(self.spooling.run(None, spool.close))

    async def submit(self, submission: Submission) -> tuple[Job, bool]:
        """Take in a job.

        Returns:
            The job and True; or, where its key was used for this very submission before, the job
            that came of it and False.

        Raises:
            ServiceError: it is refused, and nothing of it is left.
        """
        job, is_new = await self.open(submission)
        if not is_new:
            return job, False
        started = time.perf_counter()
        try:
            findings = await self.check(submission)
            accepted = await finish(
                self.change(self.ledger.accept, job.id, files_of(findings), findings.warnings)
            )
        except BaseException:
            # Nothing happens where it was accepted just before the client went away.
            await self.discard(job.id)
            raise
        logger.info(
            "job_accepted",
            job=job.id,
            task=job.spec.task,
            rows={split: facts.rows for split, facts in findings.facts.items()},
            seconds=round(time.perf_counter() - started, 3),
        )
        return accepted, True

    async def open(self, submission: Submission) -> tuple[Job, bool]:
        """Begin a job in the ledger; one whose client goes away meanwhile is forgotten again."""
        unseen: list[tuple[Job, bool]] = []
        try:
            return await finish(
                self.change(self.ledger.open, submission.spec, submission.idempotency),
                undo=unseen.append,
            )
        except asyncio.CancelledError:
            for job, is_new in unseen:
                if is_new:
                    await self.discard(job.id)
            raise

    async def discard(self, job: str) -> None:
        """Forget a job that is being validated, whatever becomes of the caller."""
        try:
            await finish(self.change(self.ledger.discard, job))
        except ServiceError as error:
            logger.warning("job_not_discarded", job=job, reason=error.detail)

    async def check(self, submission: Submission) -> Findings:
        """Read all rows, and rehearse what is to be done with them.

        Raises:
            ServiceError: they are refused, or not checked in time.
        """
        examination = Examination(submission.files, self.demands(submission.spec), CHECK_LIMIT_S)
        work = asyncio.ensure_future(
            self.checking.run(until(self.check_wait_s), self.examined, examination, submission.spec)
        )
        try:
            found = await asyncio.shield(work)
        except asyncio.CancelledError:
            examination.stop()
            work.cancel()
            await asyncio.wait([work])
            raise
        assert found is not None, "only a cancelled examination is stopped"
        return found

    def demands(self, spec: JobSpec) -> Demands:
        """What a job's rows have to be like.

        Raises:
            Unprocessable: its template is malformed.
        """
        try:
            fields = Template(spec.template).fields
        except ArtefactError as error:
            raise from_capsule_error(error) from error
        return Demands(
            fields=fields,
            label_field=spec.label_field,
            labels=spec.labels,
            max_bad_rows=spec.max_bad_rows,
            max_bytes=self.max_bytes,
            max_rows=self.max_rows,
            max_labels=MAX_LABELS,
        )

    def examined(self, examination: Examination, spec: JobSpec) -> Findings | None:
        """Examine rows and rehearse the job, in a thread; None where that was stopped.

        Raises:
            ServiceError: one or the other is refused.
        """
        found = examination.run()
        if isinstance(found, Refused):
            raise refusal(found)
        if found is not None:
            config = spec.config(self.rehearsal.max_length(spec.variant, spec.length))
            try:
                self.rehearsal.check(config, found.labels)
            except (CapsuleError, ValidationError) as error:
                raise rehearsal_failed(error) from error
        return found


def files_of(findings: Findings) -> dict[Split, DataFile]:
    """The rows as the ledger keeps them."""
    return {
        split: DataFile(facts, findings.packed[split]) for split, facts in findings.facts.items()
    }


def until(seconds: float) -> float:
    """A moment on the event loop's clock."""
    return asyncio.get_running_loop().time() + seconds
