"""Brings a task into step with what the store has of it, whichever process wrote that."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import structlog

from capsules.errors import ArtefactError
from service.engine.records import Served
from service.registry.catalogue import Catalogue
from service.registry.intake import UNUSABLE, Candidate, Intake, entry_of, tell_unserved
from service.registry.lanes import Lanes
from service.registry.ports import CapsuleBank
from service.registry.snapshot import Refusal, TaskEntry, VersionEntry
from service.registry.startup import live
from service.store import Store
from service.store.base import AliasRecord, VersionRecord
from service.store.errors import DamagedRecord, NotFound, TaskNotFound

logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Stored:
    """What the store has of a task; nothing where it has no such task."""

    versions: list[VersionRecord]
    aliases: list[AliasRecord]


class Reconciler:
    """Compares tasks with the store, and makes up for the differences.

    Args:
        store: the truth.
        bank: has the capsules of the catalogue.
        catalogue: what clients can name.
        lanes: have the threads.
        intake: the checks; the golden examples are not replayed, since whoever stored a version
            has done that.
    """

    def __init__(
        self, store: Store, bank: CapsuleBank, catalogue: Catalogue, lanes: Lanes, intake: Intake
    ) -> None:
        self.store = store
        self.bank = bank
        self.catalogue = catalogue
        self.lanes = lanes
        self.intake = intake

    async def reconcile(self, task: str) -> bool:
        """Make a task here what it is in the store; to be called under its lock, and not cancelled.

        The new state takes the place of the old in one step: what is new is in the bank before,
        and what is gone leaves it after. What is here already stays, and is not read again.

        Returns:
            Whether there was a difference.

        Raises:
            StoreError: the store cannot be read. Catalogue and bank are as they were.
        """
        found = await self.lanes.reading.run(None, self.read, task)
        here = self.catalogue.current.tasks.get(task)
        known = {} if here is None else here.versions
        versions: list[VersionEntry] = []
        try:
            for record in found.versions:
                version = await self.entry(record, known.get(record.version))
                if version is not None:
                    versions.append(version)
        except BaseException:
            for version in versions:
                self.give_up(version, known)
            raise
        there = TaskEntry.of(task, versions, live(found.aliases, versions)) if versions else None
        if there == here:
            return False
        for served in self.catalogue.replace(task, there):
            self.bank.remove(served)
        now = {version.version for version in versions}
        default = None if there is None else there.default
        logger.info(
            "task_followed",
            task=task,
            added=sorted(now - known.keys()),
            removed=sorted(known.keys() - now),
            serves=None if default is None else default.version,
        )
        return True

    def give_up(self, version: VersionEntry, known: Mapping[int, VersionEntry]) -> None:
        """Take a version out of the bank, unless it was there before."""
        old = known.get(version.version)
        if isinstance(version.capsule, Served) and (old is None or old.capsule != version.capsule):
            self.bank.remove(version.capsule)

    async def entry(self, record: VersionRecord, known: VersionEntry | None) -> VersionEntry | None:
        """A stored version as the catalogue has or gets it; None where it has just been deleted.

        Numbers are not given out twice, but a database that was restored may do so.
        """
        if known is not None and known.digest == record.digest:
            return known if known.held == record.held else replace(known, held=record.held)
        found = await self.lanes.reading.run(None, self.examine, record)
        if found is None:
            return None
        capsule = found if isinstance(found, Refusal) else await self.add(found, record)
        return entry_of(record, capsule)

    async def add(self, candidate: Candidate, record: VersionRecord) -> Served | Refusal:
        """Copy a capsule into the bank, which looks closer at it than all checks before."""
        try:
            return await self.lanes.banking.run(
                None,
                self.bank.add,
                candidate.capsule,
                version=record.version,
                digest=record.digest,
            )
        except ArtefactError as error:
            name = f"Version {record.version} of task {record.task!r}"
            refusal = Refusal(UNUSABLE, f"{name} cannot be served here. {error.message}")
            tell_unserved(record, refusal)
            return refusal

    # --- in a thread ------------------------------------------------------------------------

    def read(self, task: str) -> Stored:
        """What the store has of a task; blocks.

        Versions and aliases are read one after the other, and what happens in between is followed
        next: an alias that points at a version not seen is left out until then.
        """
        try:
            versions = self.store.list_versions(task)
            return Stored(versions, self.store.list_aliases(task))
        except TaskNotFound:
            return Stored([], [])
        except DamagedRecord:
            # Only the pass over everything salvages records, and few are ever damaged.
            versions = [record for record, _ in self.store.iter_artefacts() if record.task == task]
            return Stored(versions, [a for a in self.store.list_aliases() if a.task == task])

    def examine(self, record: VersionRecord) -> Candidate | Refusal | None:
        """Check a stored file; None where it is gone. Blocks."""
        try:
            data = self.store.artefact(record.task, record.version)
        except NotFound:
            return None
        return self.intake.admit_stored(record, data)

    def survey(self) -> list[str]:
        """The tasks in which store and catalogue differ; blocks for a pass over the whole store."""
        versions: dict[str, dict[int, tuple[str, bool]]] = {}
        for record, _ in self.store.iter_artefacts():
            versions.setdefault(record.task, {})[record.version] = (record.digest, record.held)
        aliases: dict[str, list[AliasRecord]] = {}
        for alias in self.store.list_aliases():
            aliases.setdefault(alias.task, []).append(alias)
        # Only now: of what this server changes meanwhile, too much is looked at rather than too
        # little.
        here = self.catalogue.current.tasks
        return [
            task
            for task in sorted(versions.keys() | here.keys())
            if differs(here.get(task), versions.get(task, {}), aliases.get(task, []))
        ]


def differs(
    entry: TaskEntry | None, versions: Mapping[int, tuple[str, bool]], aliases: list[AliasRecord]
) -> bool:
    """Whether a task is here as it is in the store.

    Args:
        entry: as it is here.
        versions: digest and whether it is held, by number, in the store.
        aliases: in the store.
    """
    if entry is None:
        return bool(versions)
    here = {number: (version.digest, version.held) for number, version in entry.versions.items()}
    return here != versions or list(entry.aliases.values()) != aliases
