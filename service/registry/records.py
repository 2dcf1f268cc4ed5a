"""What the registry tells of tasks and versions."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from service.store.base import AliasRecord, Source, VersionRecord


@dataclass(frozen=True, slots=True)
class TaskSummary:
    """A task as a listing shows it.

    Labels and description are those of its default version, or of the newest where it has none.

    Attributes:
        task: its name.
        default_version: what the bare name means: the alias `prod` if set, else the newest version
            that is not held; None where all are.
        servable: whether that version can be classified with here; False where there is none.
        versions: how many live versions it has.
        labels: how many labels it tells apart.
        description: what its author says about it.
        aliases: by name.
        updated_at: when the newest version came or an alias was last set, in UTC.
    """

    task: str
    default_version: int | None
    servable: bool
    versions: int
    labels: int
    description: str
    aliases: tuple[AliasRecord, ...]
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class TaskPage:
    """One page of the tasks, by name.

    Attributes:
        tasks: the page.
        after: what to ask for the next page with; None where this is the last.
    """

    tasks: tuple[TaskSummary, ...]
    after: str | None


@dataclass(frozen=True, slots=True)
class VersionSummary:
    """A version as a listing shows it, without its manifest.

    Attributes:
        version: its number within the task.
        digest: hex sha256 of its file.
        size: of the file, in bytes.
        created_at: when it was stored, in UTC.
        source: who brought it.
        held: whether the task's bare name passes it over.
        labels: how many labels it tells apart.
        description: what its author says about it.
        servable: whether it can be classified with here.
        aliases: the names of those that point at it.
    """

    version: int
    digest: str
    size: int
    created_at: datetime
    source: Source
    held: bool
    labels: int
    description: str
    servable: bool
    aliases: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TaskDetail:
    """A task with all its versions, ascending."""

    summary: TaskSummary
    versions: tuple[VersionSummary, ...]


@dataclass(frozen=True, slots=True)
class VersionDetail:
    """One version with its manifest.

    Attributes:
        record: what the store has of it.
        evaluation: how good it was found to be; None where nobody measured it.
        servable: whether it can be classified with here.
        aliases: the names of those that point at it.
    """

    record: VersionRecord
    evaluation: Mapping[str, Any] | None
    servable: bool
    aliases: tuple[str, ...]

    @property
    def manifest(self) -> Mapping[str, Any]:
        """The artefact's manifest."""
        return self.record.manifest


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What reading the whole store at start came to.

    Attributes:
        served: versions that can be classified with.
        foreign: versions of another backbone, kept and listed.
        unusable: versions that are damaged or that this release cannot read, kept and listed.
        seconds: how long it took.
    """

    served: int
    foreign: int
    unusable: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ZooReport:
    """What became of the capsules that ship with the server.

    Attributes:
        added: tasks that were uploaded.
        present: tasks that had versions already and were left alone.
        refused: file names with the code of the fault.
        complete: whether the zoo will be left alone from now on.
    """

    added: tuple[str, ...] = ()
    present: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    complete: bool = True
