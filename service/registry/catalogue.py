"""Which capsule a reference means right now: one pointer to an immutable snapshot.

Readers take the pointer once and need no lock, from any thread. Changes are made on the event
loop's thread alone, each between two steps of the loop, so none is lost. A capsule that
:meth:`Catalogue.resolve` gave is safe to classify with as long as nothing was awaited since:
the engine pins it before its first await, and whoever takes it out of here removes it from the
bank only afterwards. One that was kept longer may be gone, and then the engine refuses the row.
"""

from collections.abc import Collection

from service.engine.records import Served
from service.registry.faults import (
    alias_not_found,
    no_served_version,
    task_not_found,
    version_not_found,
)
from service.registry.reference import Reference, parse_reference
from service.registry.snapshot import Snapshot, TaskEntry, VersionEntry
from service.store.base import AliasRecord, Change


class Catalogue:
    """The present snapshot, and the changes that replace it."""

    def __init__(self) -> None:
        self.current = Snapshot.of(())

    # --- reading ----------------------------------------------------------------------------

    def resolve(self, reference: str) -> Served:
        """The capsule that `name`, `name@3` or `name:alias` means.

        Raises:
            NotFound: `task_not_found`, `version_not_found` or `alias_not_found`.
            Conflict: `no_served_version`, `backbone_mismatch` or `version_not_servable`.
            Unprocessable: the reference is malformed.
        """
        # Most references are bare names, which need no parsing: no task's name has an @ or a colon.
        entry = self.current.tasks.get(reference)
        if entry is not None and entry.default is not None:
            return entry.default.served()
        return self.find(parse_reference(reference)).served()

    def find(self, reference: Reference) -> VersionEntry:
        """The version that a reference means.

        Raises:
            NotFound: `task_not_found`, `version_not_found` or `alias_not_found`.
            Conflict: `no_served_version`.
        """
        entry = self.task(reference.task)
        if reference.version is not None:
            return self.version(reference.task, reference.version, field="task")
        if reference.alias is not None:
            alias = entry.aliases.get(reference.alias)
            if alias is None:
                raise alias_not_found(reference.task, reference.alias, field="task")
            return entry.versions[alias.version]
        if entry.default is None:
            raise no_served_version(entry.task, entry.newest.version)
        return entry.default

    def version(self, task: str, version: int, *, field: str = "version") -> VersionEntry:
        """A version by its number.

        Args:
            task: the task's name.
            version: the number.
            field: the parameter that it came in.

        Raises:
            NotFound: `task_not_found` or `version_not_found`.
        """
        entry = self.task(task).versions.get(version)
        if entry is None:
            raise version_not_found(task, version, field)
        return entry

    def task(self, task: str) -> TaskEntry:
        """A task.

        Raises:
            NotFound: `task_not_found`.
        """
        entry = self.current.tasks.get(task)
        if entry is None:
            raise task_not_found(task)
        return entry

    def reflects(self, change: Change) -> bool:
        """Whether this is what the change led to, or what a later one did.

        Of several changes of one version or alias, only the last can be asked about.
        """
        entry = self.current.tasks.get(change.task)
        alias = None if entry is None else entry.aliases.get(change.alias or "")
        match change.kind:
            case "version_added":
                return entry is not None and change.version in entry.versions
            case "version_deleted":
                return entry is None or change.version not in entry.versions
            case "alias_set":  # whose revision is the number of the change that set it
                return alias is not None and alias.revision >= change.sequence
            case "alias_deleted":
                return alias is None or alias.revision > change.sequence

    # --- changing ---------------------------------------------------------------------------

    def publish(self, task: str, version: VersionEntry) -> None:
        """Add a version that the store has."""
        entry = self.current.tasks.get(task)
        versions = () if entry is None else tuple(entry.versions.values())
        aliases = () if entry is None else tuple(entry.aliases.values())
        assert all(old.version != version.version for old in versions), "published twice"
        self.current = self.current.with_task(TaskEntry.of(task, (*versions, version), aliases))

    def retract(self, task: str, versions: Collection[int]) -> list[Served]:
        """Take versions out, with the aliases that point at them; unknown ones are skipped.

        Returns:
            What the bank may give up now.
        """
        entry = self.current.tasks.get(task)
        if entry is None or entry.versions.keys().isdisjoint(versions):
            return []
        kept = [old for number, old in entry.versions.items() if number not in versions]
        aliases = [alias for alias in entry.aliases.values() if alias.version not in versions]
        return self.replace(task, TaskEntry.of(task, kept, aliases) if kept else None)

    def replace(self, task: str, entry: TaskEntry | None) -> list[Served]:
        """Put another state in the place of a task's present one, in one step.

        Args:
            task: its name.
            entry: the task as it is to be; None takes it out.

        Returns:
            What the bank may give up now.
        """
        old = self.current.tasks.get(task)
        if entry is not None:
            self.current = self.current.with_task(entry)
        elif old is not None:
            self.current = self.current.without_task(task)
        kept = set() if entry is None else {version.capsule for version in entry.versions.values()}
        had = [] if old is None else [version.capsule for version in old.versions.values()]
        return [one for one in had if isinstance(one, Served) and one not in kept]

    def point(self, record: AliasRecord) -> None:
        """Set or move an alias, to a version that is here."""
        entry = self.current.tasks[record.task]
        aliases = {**entry.aliases, record.alias: record}
        self.current = self.current.with_task(
            TaskEntry.of(record.task, entry.versions.values(), aliases.values())
        )

    def unpoint(self, task: str, alias: str) -> None:
        """Take an alias out; an unknown one is skipped."""
        entry = self.current.tasks.get(task)
        if entry is not None and alias in entry.aliases:
            aliases = [record for name, record in entry.aliases.items() if name != alias]
            self.current = self.current.with_task(
                TaskEntry.of(task, entry.versions.values(), aliases)
            )
