"""The state of all tasks at one moment, never changed: a change makes a new one from it."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from service.engine.records import Served
from service.errors import Conflict
from service.registry.records import TaskSummary, VersionSummary
from service.store.base import DEFAULT_ALIAS, AliasRecord, Source


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a version that is stored cannot be classified with here: a code, and a sentence."""

    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class VersionEntry:
    """One live version, small enough to keep thousands in memory; the manifest is not here.

    Attributes:
        version: its number within the task.
        digest: hex sha256 of its file.
        size: of the file, in bytes.
        created_at: when it was stored, in UTC.
        source: who brought it.
        held: whether the task's bare name passes it over.
        labels: how many labels it tells apart; 0 where that cannot be read.
        description: what its author says about it.
        capsule: what rows are classified with, or why they cannot be.
    """

    version: int
    digest: str
    size: int
    created_at: datetime
    source: Source
    held: bool
    labels: int
    description: str
    capsule: Served | Refusal

    @property
    def servable(self) -> bool:
        """Whether rows can be classified with it."""
        return isinstance(self.capsule, Served)

    def served(self) -> Served:
        """What rows are classified with.

        Raises:
            Conflict: `backbone_mismatch` or `version_not_servable`.
        """
        if isinstance(self.capsule, Refusal):
            raise Conflict(self.capsule.detail, code=self.capsule.code, field="task")
        return self.capsule


@dataclass(frozen=True, slots=True)
class TaskEntry:
    """A task with at least one live version.

    Attributes:
        task: its name.
        versions: by number, ascending.
        aliases: by name; each points at one of the versions.
        default: what the bare name means: the alias `prod` where it is set, else the newest
            version that is not held; None where there is no such.
    """

    task: str
    versions: Mapping[int, VersionEntry]
    aliases: Mapping[str, AliasRecord]
    default: VersionEntry | None

    @classmethod
    def of(
        cls, task: str, versions: Iterable[VersionEntry], aliases: Iterable[AliasRecord]
    ) -> "TaskEntry":
        """Put a task together; `versions` must not be empty."""
        by_number = {entry.version: entry for entry in sorted(versions, key=lambda v: v.version)}
        by_name = {record.alias: record for record in sorted(aliases, key=lambda a: a.alias)}
        pinned = by_name.get(DEFAULT_ALIAS)
        if pinned is not None:
            return cls(task, by_number, by_name, by_number[pinned.version])
        # Strictly the newest, also where this server cannot run it: answering with an older one
        # instead would be a rollback that nobody ordered.
        released = [entry for entry in by_number.values() if not entry.held]
        return cls(task, by_number, by_name, released[-1] if released else None)

    @property
    def newest(self) -> VersionEntry:
        """The version with the highest number, held or not."""
        return self.versions[max(self.versions)]

    def with_digest(self, digest: str) -> VersionEntry | None:
        """The version that has these bytes, if any."""
        return next((v for v in self.versions.values() if v.digest == digest), None)

    def aliases_of(self, version: int) -> tuple[str, ...]:
        """The names of the aliases that point at a version."""
        return tuple(name for name, record in self.aliases.items() if record.version == version)

    def summary(self) -> TaskSummary:
        """The task as a listing shows it."""
        shown = self.newest if self.default is None else self.default
        aliases = tuple(self.aliases.values())
        return TaskSummary(
            task=self.task,
            default_version=None if self.default is None else self.default.version,
            servable=self.default is not None and self.default.servable,
            versions=len(self.versions),
            labels=shown.labels,
            description=shown.description,
            aliases=aliases,
            updated_at=max([self.newest.created_at, *(alias.updated_at for alias in aliases)]),
        )

    def version_summaries(self) -> tuple[VersionSummary, ...]:
        """Its versions as a listing shows them, ascending."""
        return tuple(
            VersionSummary(
                version=entry.version,
                digest=entry.digest,
                size=entry.size,
                created_at=entry.created_at,
                source=entry.source,
                held=entry.held,
                labels=entry.labels,
                description=entry.description,
                servable=entry.servable,
                aliases=self.aliases_of(entry.version),
            )
            for entry in self.versions.values()
        )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All tasks at one moment.

    Attributes:
        tasks: by name.
        names: their names, ascending.
        served: how many versions can be classified with.
    """

    tasks: Mapping[str, TaskEntry]
    names: tuple[str, ...]
    served: int

    @classmethod
    def of(cls, tasks: Iterable[TaskEntry]) -> "Snapshot":
        """Put a snapshot together."""
        by_name = {task.task: task for task in tasks}
        return cls(by_name, tuple(sorted(by_name)), sum(map(servable, by_name.values())))

    def with_task(self, entry: TaskEntry) -> "Snapshot":
        """This one with a task added or replaced."""
        old = self.tasks.get(entry.task)
        names = self.names
        if old is None:
            at = bisect_left(names, entry.task)
            names = (*names[:at], entry.task, *names[at:])
        served = self.served + servable(entry) - (0 if old is None else servable(old))
        return Snapshot({**self.tasks, entry.task: entry}, names, served)

    def without_task(self, task: str) -> "Snapshot":
        """This one without a task that it has."""
        tasks = dict(self.tasks)
        old = tasks.pop(task)
        at = bisect_left(self.names, task)
        names = self.names[:at] + self.names[at + 1 :]
        return Snapshot(tasks, names, self.served - servable(old))

    def page(self, after: str | None, limit: int) -> tuple[tuple[TaskEntry, ...], bool]:
        """The first `limit` tasks whose name comes after `after`, and whether more follow."""
        start = 0 if after is None else bisect_right(self.names, after)
        names = self.names[start : start + limit]
        return tuple(self.tasks[name] for name in names), start + limit < len(self.names)


def servable(entry: TaskEntry) -> int:
    """How many versions of a task can be classified with."""
    return sum(version.servable for version in entry.versions.values())
