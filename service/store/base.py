"""What a store keeps and what it promises, whatever database is beneath.

A store keeps the versions of capsules, their aliases and a log of every change. It does not know
what a capsule is: an artefact is bytes, a manifest is a JSON object.

Promises of every implementation:

- Each mutation is one transaction, on disk before the method returns, together with its entries
  in the change log.
- A version is immutable, and its number is never given out again, not even after the version or
  the whole task has been deleted.
- Methods are synchronous and safe to call from any thread.
- Only errors of `service.store.errors` are raised; any method may raise `StoreUnavailable`, and
  one that returns a version's record `DamagedRecord`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol

Source = Literal["upload", "zoo", "training"]
"""Who brought a version."""

DEFAULT_ALIAS = "prod"
"""The alias that says which version a task's bare name means; where it is not set, the newest."""

ChangeKind = Literal["version_added", "version_deleted", "alias_set", "alias_deleted"]
"""What a change did."""


@dataclass(frozen=True, slots=True)
class VersionRecord:
    """One immutable version of a task's capsule, without its bytes.

    Attributes:
        task: Name of the task.
        version: Its number within the task, from 1.
        digest: SHA-256 of the artefact, 64 lower-case hex digits.
        manifest: The artefact's manifest, parsed.
        size: Length of the artefact in bytes.
        created_at: When it was stored, in UTC.
        source: Who brought it.
        held: Whether the task's bare name passes it over; an alias or its number still reach it.
        job: Id of the training job it came of, if it did.
        damaged: The attributes that the database no longer has; what they say is made up. Only
            `iter_artefacts` gives such records, other methods raise `DamagedRecord`.
    """

    task: str
    version: int
    digest: str
    manifest: Mapping[str, Any]
    size: int
    created_at: datetime
    source: Source
    held: bool = False
    job: str | None = None
    damaged: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AliasRecord:
    """A movable name for a version of a task.

    Attributes:
        task: Name of the task.
        alias: The name.
        version: The version it points at.
        updated_at: When it was last moved, in UTC.
        revision: Grows with every move and never repeats for this alias, not even after the alias
            was deleted and set again; fit to be an ETag.
    """

    task: str
    alias: str
    version: int
    updated_at: datetime
    revision: int


@dataclass(frozen=True, slots=True)
class TaskSummary:
    """A task as a listing shows it.

    Attributes:
        task: Name of the task.
        newest: Its live version with the highest number.
        versions: How many live versions it has.
        aliases: Its aliases, by name.
    """

    task: str
    newest: VersionRecord
    versions: int
    aliases: tuple[AliasRecord, ...]


@dataclass(frozen=True, slots=True)
class Removal:
    """What a deletion took away.

    Attributes:
        versions: The deleted versions, ascending.
        aliases: The aliases that pointed at them and went with them, by name.
    """

    versions: tuple[int, ...]
    aliases: tuple[AliasRecord, ...]


@dataclass(frozen=True, slots=True)
class Extent:
    """How much a store holds.

    Attributes:
        versions: How many live versions.
        size: Bytes of their artefacts, all together.
    """

    versions: int
    size: int


@dataclass(frozen=True, slots=True)
class Change:
    """One entry of the change log.

    Attributes:
        sequence: Position in the log, from 1, without gaps.
        kind: What happened.
        task: The task it happened to.
        version: The version added or deleted, or the one the alias points (pointed) at.
        alias: The alias set or deleted; None for a version.
        at: When, in UTC.
    """

    sequence: int
    kind: ChangeKind
    task: str
    version: int
    alias: str | None
    at: datetime


class Store(Protocol):
    """Durable capsule versions. See the module for what every method promises."""

    def add_version(
        self,
        task: str,
        digest: str,
        manifest: Mapping[str, Any],
        artefact: bytes,
        source: Source,
    ) -> tuple[VersionRecord, bool]:
        """Keep an artefact as the next version of its task.

        Args:
            task: Name of the task, 1 to 63 characters.
            digest: SHA-256 of `artefact` in lower-case hex.
            manifest: The artefact's manifest; must be representable in JSON (no NaN).
            artefact: The file, byte for byte.
            source: Who brings it.

        Returns:
            The new version and True; or, where a live version of the task has these very bytes,
            that version and False, with nothing changed.

        Raises:
            InvalidValue: If an argument is out of its bounds or the digest is not that of the
                artefact.
        """
        ...

    def get_version(self, task: str, version: int) -> VersionRecord:
        """Return one live version.

        Raises:
            TaskNotFound: If the task has no live version.
            VersionNotFound: If it has some, and not this one.
        """
        ...

    def list_versions(self, task: str) -> list[VersionRecord]:
        """Return the live versions of a task, ascending; never empty.

        Raises:
            TaskNotFound: If the task has no live version.
        """
        ...

    def list_tasks(self, after: str | None = None, limit: int = 100) -> list[TaskSummary]:
        """Return one page of the tasks that have a live version, by name.

        Args:
            after: Last name of the previous page; None for the first page.
            limit: Most tasks to return, at least 1.

        Raises:
            InvalidValue: If `limit` is below 1.
        """
        ...

    def artefact(self, task: str, version: int) -> bytes:
        """Return the bytes of one live version as they came.

        Raises:
            TaskNotFound: If the task has no live version.
            VersionNotFound: If it has some, and not this one.
        """
        ...

    def evaluation(self, task: str, version: int) -> Mapping[str, Any] | None:
        """Return how good one live version was found to be; None where nobody measured it.

        Raises:
            TaskNotFound: If the task has no live version.
            VersionNotFound: If it has some, and not this one.
            DamagedRecord: If the database no longer has what was found.
        """
        ...

    def extent(self) -> Extent:
        """Return how much there is, by what the records say; no artefact is read."""
        ...

    def iter_artefacts(self) -> Iterator[tuple[VersionRecord, bytes]]:
        """Stream every live version with its bytes, by task and version.

        One pass over one snapshot, with a few artefacts in memory at a time. The snapshot is held
        until the iterator is exhausted or closed. Consume it in one thread. A version whose row
        cannot be read is among them, see `VersionRecord.damaged`.

        To follow from here without missing a change, call `head_sequence` before this.
        """
        ...

    def delete_version(self, task: str, version: int) -> Removal:
        """Delete one version, and the aliases that point at it.

        Raises:
            TaskNotFound: If the task has no live version.
            VersionNotFound: If it has some, and not this one.
        """
        ...

    def delete_task(self, task: str) -> Removal:
        """Delete every version and alias of a task.

        Raises:
            TaskNotFound: If the task has no live version.
        """
        ...

    def get_alias(self, task: str, alias: str) -> AliasRecord:
        """Return one alias.

        Raises:
            TaskNotFound: If the task has no live version.
            AliasNotFound: If the task has no such alias.
        """
        ...

    def list_aliases(self, task: str | None = None) -> list[AliasRecord]:
        """Return the aliases of a task, or of all tasks, by task and name.

        Raises:
            TaskNotFound: If a task is named and has no live version.
        """
        ...

    def set_alias(
        self, task: str, alias: str, version: int, expected_revision: int | None = None
    ) -> tuple[AliasRecord, bool]:
        """Point an alias at a version.

        Args:
            task: Name of the task.
            alias: The alias, 1 to 63 characters.
            version: A live version of the task.
            expected_revision: Change it only if it is at this revision; 0 only if it is not set;
                None whatever it is.

        Returns:
            The alias as it is now, and whether it was newly set. An alias that already points at
            the version keeps its revision.

        Raises:
            TaskNotFound: If the task has no live version.
            VersionNotFound: If the task has no such version.
            AliasConflict: If the alias is not at `expected_revision`.
            InvalidValue: If the alias is out of its bounds.
        """
        ...

    def delete_alias(
        self, task: str, alias: str, expected_revision: int | None = None
    ) -> AliasRecord:
        """Delete an alias and return it as it was.

        Raises:
            TaskNotFound: If the task has no live version.
            AliasNotFound: If the task has no such alias.
            AliasConflict: If the alias is not at `expected_revision`.
        """
        ...

    def head_sequence(self) -> int:
        """Return the sequence number of the newest change; 0 before the first."""
        ...

    def changes_since(self, sequence: int, limit: int = 1000) -> list[Change]:
        """Return the oldest changes after a sequence number, in order.

        Args:
            sequence: The last sequence number the caller has seen; 0 for none.
            limit: Most changes to return, at least 1; call again from the last one for more.

        Raises:
            ChangesUnavailable: If the log was pruned beyond `sequence` or has not reached it.
            InvalidValue: If `limit` is below 1.
        """
        ...

    def prune(self, keep: int) -> int:
        """Forget all but the newest changes.

        Args:
            keep: How many to keep, at least 1: the newest carries the head of the log.

        Returns:
            How many were forgotten.

        Raises:
            InvalidValue: If `keep` is below 1.
        """
        ...

    def mark(self, key: str, value: str) -> None:
        """Remember a note of the service's own, such as that the zoo has been loaded.

        Raises:
            InvalidValue: If the key is not 1 to 63 characters.
        """
        ...

    def marked(self, key: str) -> str | None:
        """Return what was last noted under a key, or None."""
        ...

    def ping(self) -> None:
        """Read from the database, and raise `StoreUnavailable` if that fails."""
        ...

    def close(self) -> None:
        """Release the database; later calls raise `StoreUnavailable`. Safe to repeat."""
        ...
