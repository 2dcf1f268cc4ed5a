"""Reads the whole store into the bank and a first snapshot, in one pass at start."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Event

from service.engine.records import Served
from service.registry.intake import Intake, entry_of
from service.registry.lanes import Lane
from service.registry.ports import CapsuleBank
from service.registry.snapshot import Refusal, Snapshot, TaskEntry, VersionEntry
from service.registry.storage import stored
from service.store import Store
from service.store.base import AliasRecord, VersionRecord

PROGRESS_EVERY = 100


@dataclass(frozen=True, slots=True)
class Loaded:
    """What came out of the store.

    Attributes:
        snapshot: every live version, those that cannot be served included.
        refusals: how many of these there are, by code.
    """

    snapshot: Snapshot
    refusals: Mapping[str, int]


class Loader:
    """One pass over the store, to be run in a thread; at most a few artefacts are in memory.

    Args:
        store: what is read.
        bank: what the capsules are copied into.
        intake: the checks; the golden examples are not replayed, since they were at upload.
    """

    def __init__(self, store: Store, bank: CapsuleBank, intake: Intake) -> None:
        self.store = store
        self.bank = bank
        self.intake = intake
        self.stopped = Event()

    def stop(self) -> None:
        """End the pass early; may be called from any thread."""
        self.stopped.set()

    def run(self, progress: Callable[[int], None]) -> Loaded | None:
        """Read everything; None where the pass was stopped.

        Args:
            progress: is told, in this thread, how many versions have been read.

        Raises:
            StoreError: the store cannot be read. The bank is left as it was.
        """
        versions: dict[str, list[VersionEntry]] = {}
        try:
            self.read(versions, progress)
            if self.stopped.is_set():
                self.give_back(versions)
                return None
            aliases = self.read_aliases()
        except BaseException:
            self.give_back(versions)
            raise
        entries = [version for of_task in versions.values() for version in of_task]
        return Loaded(
            Snapshot.of(
                TaskEntry.of(task, of_task, live(aliases.get(task, []), of_task))
                for task, of_task in versions.items()
            ),
            Counter(entry.capsule.code for entry in entries if isinstance(entry.capsule, Refusal)),
        )

    def read(
        self, versions: dict[str, list[VersionEntry]], progress: Callable[[int], None]
    ) -> None:
        """Collect the versions by task, until the end or until stopped."""
        extent = self.store.extent()
        self.bank.expect(extent.versions, extent.size)
        count = 0
        for count, (record, data) in enumerate(self.store.iter_artefacts(), start=1):
            if self.stopped.is_set():
                return
            versions.setdefault(record.task, []).append(self.admit(record, data))
            if count % PROGRESS_EVERY == 0:
                progress(count)
        progress(count)

    def admit(self, record: VersionRecord, data: bytes) -> VersionEntry:
        """Bring one version into the bank; whatever is wrong with it is its own affair.

        All of another backbone's are one finding, which the end of the load reports.
        """
        candidate = self.intake.admit_stored(record, data)
        if isinstance(candidate, Refusal):
            return entry_of(record, candidate)
        served = self.bank.add(candidate.capsule, version=record.version, digest=record.digest)
        return entry_of(record, served)

    def read_aliases(self) -> dict[str, list[AliasRecord]]:
        """All aliases by task."""
        aliases: dict[str, list[AliasRecord]] = {}
        for alias in self.store.list_aliases():
            aliases.setdefault(alias.task, []).append(alias)
        return aliases

    def give_back(self, versions: Mapping[str, list[VersionEntry]]) -> None:
        """Remove from the bank what was added to it."""
        for of_task in versions.values():
            for version in of_task:
                if isinstance(version.capsule, Served):
                    self.bank.remove(version.capsule)


async def load_store(loader: Loader, lane: Lane, progress: Callable[[int], None] | None) -> Loaded:
    """Run a pass in a thread, and stop it where the caller is cancelled.

    Args:
        loader: the pass.
        lane: has the thread.
        progress: is told, on the event loop, how many versions have been read.

    Raises:
        ServiceError: the store cannot be read. The bank is left as it was.
    """
    loop = asyncio.get_running_loop()

    def report(count: int) -> None:
        if progress is not None:
            loop.call_soon_threadsafe(progress, count)

    work = asyncio.ensure_future(stored(lane, None, loader.run, report))
    try:
        loaded = await asyncio.shield(work)
    except asyncio.CancelledError:
        loader.stop()
        await asyncio.wait([work])
        raise
    assert loaded is not None, "only a cancelled pass is stopped"
    return loaded


def live(aliases: list[AliasRecord], versions: list[VersionEntry]) -> list[AliasRecord]:
    """The aliases that point at one of the versions.

    The two are read one after the other, so another server may have set an alias in between.
    """
    numbers = {version.version for version in versions}
    return [alias for alias in aliases if alias.version in numbers]
