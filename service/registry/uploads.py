"""How a version comes in: all of it or nothing."""

import structlog

from capsules.errors import ArtefactError
from service.engine.records import Served
from service.errors import NotFound, from_capsule_error
from service.registry.cancellation import finish
from service.registry.catalogue import Catalogue
from service.registry.intake import Candidate, Intake, entry_of
from service.registry.lanes import Lanes
from service.registry.locks import TaskLocks
from service.registry.ports import CapsuleEngine
from service.registry.proof import prove
from service.registry.storage import stored
from service.store import Store
from service.store.base import Source, VersionRecord

CANDIDATE = 0
"""The version number of a capsule under proof, which has none yet."""

EXAMINED_AT_ONCE_BYTES = 64 * 1024
"""What is examined without leaving the event loop, in about a millisecond: handing it to a thread
and back costs as much beside a busy model."""

logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)


class Uploads:
    """Examines, proves, stores and publishes capsules.

    Args:
        store: numbers and keeps the versions.
        engine: proves and serves them.
        catalogue: where they are published.
        locks: shared by all changes of a task.
        lanes: have the threads.
        intake: the checks for this backbone.
        proof_timeout_s: longest time for replaying a capsule's golden examples.
        tolerance: how far their probabilities may be off.
    """

    def __init__(
        self,
        store: Store,
        engine: CapsuleEngine,
        catalogue: Catalogue,
        locks: TaskLocks,
        lanes: Lanes,
        intake: Intake,
        proof_timeout_s: float,
        tolerance: float,
    ) -> None:
        self.store = store
        self.engine = engine
        self.catalogue = catalogue
        self.locks = locks
        self.lanes = lanes
        self.intake = intake
        self.proof_timeout_s = proof_timeout_s
        self.tolerance = tolerance

    def knows(self, task: str) -> bool:
        """Whether the task has a live version."""
        return task in self.catalogue.current.tasks

    async def examine(self, data: bytes, until: float | None = None) -> Candidate:
        """The checks that need no model.

        Args:
            data: the file.
            until: when to give up waiting for other uploads, on the event loop's clock.

        Raises:
            Unprocessable: with the code of the fault.
            Unavailable: `busy`.
        """
        try:
            if len(data) <= EXAMINED_AT_ONCE_BYTES:
                return self.intake.examine(data)
            return await self.lanes.examining.run(until, self.intake.examine, data)
        except ArtefactError as error:
            raise from_capsule_error(error) from error

    async def admit(
        self, candidate: Candidate, source: Source, until: float | None = None
    ) -> tuple[VersionRecord, bool]:
        """Prove, store and publish a capsule, unless the task has these very bytes already.

        Args:
            candidate: has passed the other checks.
            source: who brings it.
            until: when to give up waiting for other changes, on the event loop's clock.

        Returns:
            The version, and whether it is new.

        Raises:
            Unprocessable: `golden_mismatch` or `invalid_labels`.
            Conflict: the task has these bytes, but its copy cannot be served.
            ServiceError: the engine or the store failed.
        """
        async with self.locks.hold(candidate.task, until):
            present = await self.present(candidate, until)
            if present is not None:
                return present, False
            await self.prove(candidate)
            return await finish(self.commit(candidate, source, until))

    async def present(self, candidate: Candidate, until: float | None) -> VersionRecord | None:
        """The live version that has the candidate's bytes, if any."""
        entry = self.catalogue.current.tasks.get(candidate.task)
        version = None if entry is None else entry.with_digest(candidate.digest)
        if version is None:
            return None
        version.served()
        try:
            return await stored(
                self.lanes.reading, until, self.store.get_version, candidate.task, version.version
            )
        except NotFound:  # deleted by another process a moment ago
            for served in self.catalogue.retract(candidate.task, [version.version]):
                self.engine.bank.remove(served)
            return None

    async def prove(self, candidate: Candidate) -> None:
        """Replay the golden examples on a copy that no client can see and that does not stay.

        Without any, there is something to prove only where labels are words, which the bank alone
        can tell apart.

        Raises:
            Unprocessable: `golden_mismatch`, or `invalid_labels` for such words.
        """
        manifest = candidate.capsule.manifest
        if not manifest.golden and manifest.words is None:
            return
        try:
            served = await finish(self.add(candidate, CANDIDATE), undo=self.engine.bank.remove)
        except ArtefactError as error:
            raise from_capsule_error(error) from error
        try:
            await prove(
                manifest.golden,
                served,
                self.engine,
                self.proof_timeout_s,
                self.tolerance,
            )
        finally:
            self.engine.bank.remove(served)

    async def commit(
        self, candidate: Candidate, source: Source, until: float | None
    ) -> tuple[VersionRecord, bool]:
        """Store and publish; must not be interrupted between the two.

        The number comes from the store, and a `Served` is immutable, so the capsule enters the
        bank anew.
        """
        record, created, served = await stored(
            self.lanes.writing, until, self.keep, candidate, source
        )
        self.catalogue.publish(record.task, entry_of(record, served))
        logger.info(
            "capsule_published",
            task=record.task,
            version=record.version,
            digest=record.digest,
            source=record.source,
        )
        return record, created

    async def add(self, candidate: Candidate, version: int) -> Served:
        """Copy a capsule into the bank; off the event loop, since it may have to wait for it."""
        return await self.lanes.banking.run(
            None, self.engine.bank.add, candidate.capsule, version=version, digest=candidate.digest
        )

    # --- in a thread ------------------------------------------------------------------------

    def keep(self, candidate: Candidate, source: Source) -> tuple[VersionRecord, bool, Served]:
        """Store a capsule and copy it into the bank; blocks.

        Should the bank not take it, the version is taken back: nobody has been told of it yet.
        """
        record, created = self.store.add_version(
            candidate.task, candidate.digest, candidate.manifest, candidate.data, source
        )
        try:
            served = self.engine.bank.add(
                candidate.capsule, version=record.version, digest=candidate.digest
            )
        except Exception:
            if created:
                self.store.delete_version(record.task, record.version)
            raise
        return record, created, served
