"""The registry: keeps store, bank and catalogue in step while traffic flows.

The store is the truth, the bank holds the tensors, and the catalogue is what clients can name. A
version comes in through bank and store to the catalogue, and goes out through store and catalogue
to the bank, so whatever can be named is stored and resident. Changes of one task come one after
the other. What other processes write to the store comes in by a follower. docs/decisions/0006-hot-swap.md
and 0011-followers.md tell why it is done this way.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict

import structlog

from capsules.backbones.base import BackboneInfo
from capsules.errors import ArtefactFault
from capsules.executors.base import TOLERANCE
from service.engine.records import Served
from service.registry.cancellation import finish
from service.registry.catalogue import Catalogue
from service.registry.changes import Changes
from service.registry.faults import artefact_damaged, warming
from service.registry.follower import INTERVAL_S, Follower
from service.registry.intake import Intake
from service.registry.lanes import Lanes
from service.registry.locks import TaskLocks
from service.registry.ports import (
    ArtefactFile,
    CapsuleEngine,
    RegistryObserver,
    SilentObserver,
)
from service.registry.reconciler import Reconciler
from service.registry.records import LoadReport, TaskDetail, TaskPage, VersionDetail, ZooReport
from service.registry.reference import check_alias_name, check_task_name
from service.registry.startup import Loader, load_store
from service.registry.storage import digested, recorded, stored, translated
from service.registry.uploads import Uploads
from service.registry.zoo import load_zoo
from service.store import Store
from service.store.base import AliasRecord, Removal, Source, VersionRecord

PROOF_TIMEOUT_S = 30.0
PATIENCE_S = 10.0
"""How long a request waits for others that are ahead of it, all its waits together."""

logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)


class Registry:
    """Uploads, deletes, aliases, lists and resolves capsule versions.

    To be used on one event loop; :meth:`resolve` alone may be called from any thread.

    Args:
        store: an open store; the caller closes it, after the last call here has returned.
        engine: proves and serves capsules; must be running for uploads.
        backbone: the one that the engine runs.
        observer: is told of what is worth measuring.
        proof_timeout_s: longest time for replaying a capsule's golden examples.
        tolerance: how far their probabilities may be off, as the engine's executor has it.
        patience_s: longest time that a request waits for others that are ahead of it.
    """

    def __init__(
        self,
        store: Store,
        engine: CapsuleEngine,
        backbone: BackboneInfo,
        *,
        observer: RegistryObserver | None = None,
        proof_timeout_s: float = PROOF_TIMEOUT_S,
        tolerance: float = TOLERANCE,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.store = store
        self.engine = engine
        self.observer = SilentObserver() if observer is None else observer
        self.intake = Intake(backbone)
        self.catalogue = Catalogue()
        self.locks = TaskLocks()
        self.lanes = Lanes()
        self.patience_s = patience_s
        self.uploads = Uploads(
            store,
            engine,
            self.catalogue,
            self.locks,
            self.lanes,
            self.intake,
            proof_timeout_s,
            tolerance,
        )
        self.changes = Changes(store, engine.bank, self.catalogue, self.lanes)
        self.reconciler = Reconciler(store, engine.bank, self.catalogue, self.lanes, self.intake)
        self.loaded = False
        self.position = 0

    @property
    def served(self) -> int:
        """How many versions can be classified with."""
        return self.catalogue.current.served

    def knows(self, task: str) -> bool:
        """Whether a task has a version, servable or not; may be called from any thread."""
        return task in self.catalogue.current.tasks

    def has(self, task: str, version: int) -> bool:
        """Whether a version is here, servable or not; may be called from any thread."""
        entry = self.catalogue.current.tasks.get(task)
        return entry is not None and version in entry.versions

    # --- start ------------------------------------------------------------------------------

    async def load(self, progress: Callable[[int], None] | None = None) -> LoadReport:
        """Bring everything that is stored into the bank; until then, all else is refused.

        Versions of another backbone, and those that are damaged, are logged, kept and listed.

        Args:
            progress: is told now and then, on the event loop, how many versions have been read.

        Raises:
            ServiceError: the store cannot be read; nothing was loaded.
        """
        assert not self.loaded, "the store is loaded once"
        started = time.perf_counter()
        # Before the store is read, so that what is written meanwhile is followed rather than missed.
        self.position = await stored(self.lanes.reading, None, self.store.head_sequence)
        loader = Loader(self.store, self.engine.bank, self.intake)
        loaded = await load_store(loader, self.lanes.reading, progress)
        self.catalogue.current = loaded.snapshot
        self.loaded = True
        seconds = time.perf_counter() - started
        foreign = loaded.refusals.get(ArtefactFault.BACKBONE_MISMATCH, 0)
        report = LoadReport(
            served=self.served,
            foreign=foreign,
            unusable=sum(loaded.refusals.values()) - foreign,
            seconds=seconds,
        )
        self.observer.load_finished(seconds)
        self.observer.capsules_served(self.served)
        log = logger.warning if loaded.refusals else logger.info
        log("capsules_loaded", **asdict(report))
        return report

    async def load_zoo(self, files: Iterable[ArtefactFile]) -> ZooReport:
        """Upload the capsules that ship with the server, on its first start; see `zoo`."""
        self.require_loaded()
        report = await load_zoo(files, self.store, self.lanes, self.uploads)
        self.observer.capsules_served(self.served)
        return report

    def follower(self, interval_s: float = INTERVAL_S) -> Follower:
        """What keeps a loaded registry in step with others on the same store, while it is run.

        Args:
            interval_s: between two looks at the store's log.
        """
        self.require_loaded()
        return Follower(
            self.reconciler, self.locks, self.position, self.observer, interval_s=interval_s
        )

    def close(self) -> None:
        """Let the threads end; the store and the engine stay as they are."""
        self.lanes.close()

    def until(self) -> float:
        """When a request that arrives now gives up waiting for others, on the event loop's clock."""
        return asyncio.get_running_loop().time() + self.patience_s

    def require_loaded(self) -> None:
        """Refuse to answer from a catalogue that is not there yet.

        Raises:
            Unavailable: `warming`.
        """
        if not self.loaded:
            raise warming()

    # --- reading ----------------------------------------------------------------------------

    def resolve(self, reference: str) -> Served:
        """The capsule that `name`, `name@3` or `name:alias` means; see `Catalogue.resolve`.

        Hand it to the engine before awaiting anything else, for it may be deleted meanwhile.

        Raises:
            NotFound: `task_not_found`, `version_not_found` or `alias_not_found`.
            Conflict: `no_served_version`, `backbone_mismatch` or `version_not_servable`.
            Unprocessable: the reference is malformed.
            Unavailable: `warming`.
        """
        self.require_loaded()
        return self.catalogue.resolve(reference)

    async def list_tasks(self, after: str | None = None, limit: int = 100) -> TaskPage:
        """One page of the tasks by name; from memory, whatever their number.

        Args:
            after: the last name of the previous page; None for the first page.
            limit: most tasks to return, at least 1.
        """
        self.require_loaded()
        if limit < 1:
            raise ValueError(f"limit: {limit} is below 1; ask for at least 1")
        entries, more = self.catalogue.current.page(after, limit)
        return TaskPage(
            tasks=tuple(entry.summary() for entry in entries),
            after=entries[-1].task if more else None,
        )

    async def describe(self, task: str) -> TaskDetail:
        """A task with all its versions, without their manifests.

        Raises:
            NotFound: `task_not_found`.
            Unprocessable: `invalid_task_name`.
        """
        self.require_loaded()
        check_task_name(task)
        entry = self.catalogue.task(task)
        return TaskDetail(entry.summary(), entry.version_summaries())

    async def version(self, task: str, version: int) -> VersionDetail:
        """One version with its manifest, and how good it was found to be.

        Raises:
            NotFound: `task_not_found` or `version_not_found`.
            Unprocessable: `invalid_task_name`.
            InternalError: `artefact_damaged`; what the store has of it cannot be read.
        """
        self.require_loaded()
        check_task_name(task)
        entry = self.catalogue.version(task, version)
        aliases = self.catalogue.task(task).aliases_of(version)
        record, evaluation = await stored(
            self.lanes.reading, self.until(), recorded, self.store, task, version
        )
        return VersionDetail(record, evaluation, entry.servable, aliases)

    async def artefact(self, task: str, version: int) -> bytes:
        """The file of a version, byte for byte as it came.

        Raises:
            NotFound: `task_not_found` or `version_not_found`.
            Unprocessable: `invalid_task_name`.
            InternalError: `artefact_damaged`; the stored bytes have changed.
        """
        self.require_loaded()
        check_task_name(task)
        entry = self.catalogue.version(task, version)
        data, found = await stored(
            self.lanes.reading, self.until(), digested, self.store, task, version
        )
        if found != entry.digest:
            logger.error("artefact_damaged", task=task, version=version)
            raise artefact_damaged(task, version)
        return data

    # --- changing ---------------------------------------------------------------------------

    async def upload(self, data: bytes, source: Source = "upload") -> tuple[VersionRecord, bool]:
        """Check, prove, store and publish an artefact; once this returns, it is on disk.

        Uploading bytes that the task has already changes nothing, and a version that is held stays
        so: to upload is safe to repeat, and whether a version is served has been decided. A refusal
        leaves no trace.

        Args:
            data: the file.
            source: who brings it.

        Returns:
            The version, and whether it is new.

        Raises:
            Unprocessable: with the code of the fault, see `capsules.errors.ArtefactFault`.
            Conflict: the task has these bytes, but its copy cannot be served.
            ServiceError: the engine or the store could not do it now.
        """
        self.require_loaded()
        until = self.until()
        candidate = await self.uploads.examine(data, until)
        result = await self.uploads.admit(candidate, source, until)
        self.observer.capsules_served(self.served)
        return result

    async def refresh(self, task: str, version: int) -> None:
        """See to it that a version which another process has stored is here now, not in a second.

        Nothing is read where it is here already, and nothing happens where the store has none.

        Raises:
            Unavailable: `busy`, or the store cannot be reached.
        """
        self.require_loaded()
        if not self.has(task, version):
            async with self.locks.hold(task, self.until()):
                await self.catch_up(task)

    async def delete_version(self, task: str, version: int) -> Removal:
        """Delete one version, and the aliases that point at it; rows in flight are answered.

        Returns:
            What went, the aliases included.

        Raises:
            NotFound: `task_not_found` or `version_not_found`.
            Unprocessable: `invalid_task_name`.
        """
        return await self.remove(task, version)

    async def delete_task(self, task: str) -> Removal:
        """Delete every version and alias of a task; rows in flight are answered.

        Raises:
            NotFound: `task_not_found`.
            Unprocessable: `invalid_task_name`.
        """
        return await self.remove(task, None)

    async def set_alias(
        self, task: str, alias: str, version: int, if_match: int | None = None
    ) -> tuple[AliasRecord, bool]:
        """Point an alias at a version; `prod` is what the task's bare name follows.

        Args:
            task: the task's name.
            alias: the alias.
            version: one of the task's versions.
            if_match: change it only at this revision; 0 only where it is not set; None anyway.

        Returns:
            The alias as it is now, and whether it was newly set.

        Raises:
            NotFound: `task_not_found` or `version_not_found`.
            Conflict: the version cannot be served here, so nothing should be sent to it.
            PreconditionFailed: `alias_conflict`.
            Unprocessable: `invalid_task_name` or `invalid_alias_name`.
        """
        self.require_loaded()
        check_task_name(task)
        check_alias_name(alias)
        until = self.until()
        async with self.locks.hold(task, until):
            if not self.has(task, version):  # another process may have just stored it
                await self.catch_up(task)
            self.catalogue.version(task, version).served()
            return await finish(self.changes.point(task, alias, version, if_match, until))

    async def delete_alias(self, task: str, alias: str, if_match: int | None = None) -> AliasRecord:
        """Delete an alias and return it as it was.

        Args:
            task: the task's name.
            alias: the alias.
            if_match: delete it only at this revision; None anyway.

        Raises:
            NotFound: `task_not_found` or `alias_not_found`.
            PreconditionFailed: `alias_conflict`.
            Unprocessable: `invalid_task_name` or `invalid_alias_name`.
        """
        self.require_loaded()
        check_task_name(task)
        check_alias_name(alias)
        until = self.until()
        async with self.locks.hold(task, until):
            return await finish(self.changes.unpoint(task, alias, if_match, until))

    # --- under the task's lock ----------------------------------------------------------------

    async def remove(self, task: str, version: int | None) -> Removal:
        """Delete a version, or all of a task's."""
        self.require_loaded()
        check_task_name(task)
        until = self.until()
        try:
            async with self.locks.hold(task, until):
                return await finish(self.changes.remove(task, version, until))
        finally:
            self.observer.capsules_served(self.served)

    async def catch_up(self, task: str) -> None:
        """Make a task here what it is in the store."""
        with translated():
            await finish(self.reconciler.reconcile(task))
        self.observer.capsules_served(self.served)
