"""Everything the store raises.

    StoreError                    a defect of the store; else one of these
    ├── NotFound                  what was named does not exist
    │   ├── TaskNotFound          the task has no live version
    │   ├── VersionNotFound       the task has some, and not this one
    │   └── AliasNotFound         the task has no such alias
    ├── DamagedRecord             the database holds what was never written there
    ├── AliasConflict             the alias is not at the revision the caller expected
    ├── ChangesUnavailable        the change log does not reach back to (or up to) this point
    ├── InvalidValue              a value that can never be stored; also a ValueError
    ├── UnsupportedUrl            no implementation serves this URL; also a ValueError
    ├── SchemaTooNew              the database was written by a newer release
    └── StoreUnavailable          locked, full, unreadable, unreachable or closed

No exception of SQLAlchemy, Alembic or a database driver leaves the store. The service gives each
of these its HTTP status; nothing here speaks HTTP.
"""

from collections.abc import Sequence

# ruff: noqa: N818 - a name says what is the case ("task not found"); the base has the suffix.


class StoreError(Exception):
    """Base of all store errors; raised itself only for a defect inside the store."""


class NotFound(StoreError):
    """The task, version or alias that was named does not exist."""


class TaskNotFound(NotFound):
    """The task has no live version.

    Attributes:
        task: The name that was looked up.
    """

    def __init__(self, task: str) -> None:
        super().__init__(f"task {task!r} has no capsule; list the tasks to see those that have")
        self.task = task


class VersionNotFound(NotFound):
    """The task is known and this version of it is not live.

    Attributes:
        task: The task that was looked up.
        version: The version it does not have, or no longer has.
    """

    def __init__(self, task: str, version: int) -> None:
        super().__init__(
            f"task {task!r} has no version {version}; list its versions to see those it has"
        )
        self.task = task
        self.version = version


class AliasNotFound(NotFound):
    """The task is known and has no such alias.

    Attributes:
        task: The task that was looked up.
        alias: The alias it does not have.
    """

    def __init__(self, task: str, alias: str) -> None:
        super().__init__(
            f"task {task!r} has no alias {alias!r}; list its aliases to see those it has"
        )
        self.task = task
        self.alias = alias


class DamagedRecord(StoreError):
    """A version is there, but not as it was written.

    Attributes:
        task: The task of the version.
        version: Its number.
    """

    def __init__(self, task: str, version: int, columns: Sequence[str]) -> None:
        super().__init__(
            f"version {version} of task {task!r} cannot be read ({', '.join(columns)}); delete it, "
            "then upload the file again"
        )
        self.task = task
        self.version = version


class AliasConflict(StoreError):
    """The alias is not at the revision the caller expected, so nothing was changed.

    Attributes:
        task: The task of the alias.
        alias: The alias that was to be changed.
        expected: The revision the caller expected; 0 for "not set".
        actual: The revision it is at; 0 for "not set".
    """

    def __init__(self, task: str, alias: str, *, expected: int, actual: int) -> None:
        super().__init__(
            f"alias {alias!r} of task {task!r} is at revision {actual}, not {expected} "
            "(0: not set); read it again and repeat the change on what it is now"
        )
        self.task = task
        self.alias = alias
        self.expected = expected
        self.actual = actual


class ChangesUnavailable(StoreError):
    """The log cannot tell what happened after this sequence number.

    It was pruned past it, or the database was restored from an older copy and has not reached it.

    Attributes:
        after: The sequence number the caller had reached.
        oldest: The oldest change kept; 1 where there is none yet.
        head: The newest change.
    """

    def __init__(self, after: int, *, oldest: int, head: int) -> None:
        super().__init__(
            f"changes after sequence {after} are not known (the log holds {oldest} to {head}); "
            "take head_sequence(), load every artefact again and follow from there"
        )
        self.after = after
        self.oldest = oldest
        self.head = head


class InvalidValue(StoreError, ValueError):
    """A value that can never be stored: fix the argument, retrying does not help."""


class UnsupportedUrl(StoreError, ValueError):
    """No store implementation serves this URL."""


class SchemaTooNew(StoreError):
    """The database has a schema revision that this release does not know.

    Attributes:
        found: The revision in the database.
        newest: The newest revision this release knows.
    """

    def __init__(self, found: str, newest: str) -> None:
        super().__init__(
            f"the database is at schema revision {found!r} and this release knows revisions up "
            f"to {newest!r}; start the release that wrote it, or a newer one"
        )
        self.found = found
        self.newest = newest


class StoreUnavailable(StoreError):
    """The database cannot serve at present: locked, full, unreadable, unreachable or closed."""
