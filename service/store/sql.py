"""The store on any SQL database; a subclass brings the engine and serialises the writers."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Engine, and_, delete, func, select
from sqlalchemy.orm import Session

from service.store import log
from service.store.additions import Run, add, keep
from service.store.aliases import point
from service.store.base import (
    AliasRecord,
    Change,
    Extent,
    Removal,
    Source,
    TaskSummary,
    VersionRecord,
)
from service.store.errors import (
    AliasConflict,
    DamagedRecord,
    StoreUnavailable,
    TaskNotFound,
)
from service.store.lookup import alias_row, require_task, version_row
from service.store.migrate import upgrade
from service.store.models import AliasRow, ArtefactRow, EvaluationRow, MarkRow, VersionRow
from service.store.translate import translated
from service.store.values import at_least_one, check_digest, check_source, json_object

STREAM_ROWS = 16
"""Artefacts fetched at a time while streaming; at most a few hundred KB each."""


def utc_now() -> datetime:
    """Return the time, in UTC."""
    return datetime.now(UTC)


class SqlStore(ABC):
    """A `Store` on SQLAlchemy: every method is one transaction, read or write.

    Args:
        engine: Where to connect. Its isolation must give a transaction one snapshot.
        clock: Tells the time that is stamped on what is written; must be aware.
    """

    def __init__(self, engine: Engine, clock: Callable[[], datetime] = utc_now) -> None:
        self.engine = engine
        self.clock = clock
        self.driver_error: type[Exception] = engine.dialect.loaded_dbapi.Error
        self.closed = False

    @abstractmethod
    def serialise(self, session: Session) -> None:
        """Begin a transaction that excludes every other writer until it ends."""

    @abstractmethod
    def driving(self) -> AbstractContextManager[Run]:
        """Open a transaction like `writing`, of statements that the driver runs as they are."""

    def migrate(self) -> None:
        """Bring the database to this release's schema.

        Raises:
            SchemaTooNew: If a newer release wrote it.
        """
        with self.writing() as session:
            upgrade(session.connection())

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Open a transaction that sees one snapshot."""
        with self.opened(), Session(self.engine) as session, session.begin():
            yield session

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Refuse to work once closed, and let nothing but `StoreError` out."""
        if self.closed:
            raise StoreUnavailable("the store is closed; open it again")
        with translated(self.driver_error):
            yield

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """Open a transaction that no other writer overlaps, committed at the end."""
        with self.reading() as session:
            self.serialise(session)
            yield session

    # --- versions ---------------------------------------------------------------------------

    def add_version(
        self,
        task: str,
        digest: str,
        manifest: Mapping[str, Any],
        artefact: bytes,
        source: Source,
    ) -> tuple[VersionRecord, bool]:
        """See `Store.add_version`."""
        check_digest(digest, artefact)
        check_source(source)
        parsed = json_object(manifest)
        with self.driving() as run:
            kept = keep(run, task, digest, parsed, artefact, source, self.now())
        if isinstance(kept, VersionRecord):
            return kept, True
        # To tell of what is there takes a session, and another process may take it away meanwhile.
        with self.writing() as session:
            return add(session, task, digest, parsed, artefact, source, self.now())

    def get_version(self, task: str, version: int) -> VersionRecord:
        """See `Store.get_version`."""
        with self.reading() as session:
            return version_row(session, task, version).record()

    def list_versions(self, task: str) -> list[VersionRecord]:
        """See `Store.list_versions`."""
        statement = select(VersionRow).where(VersionRow.task == task).order_by(VersionRow.version)
        with self.reading() as session:
            records = [row.record() for row in session.scalars(statement)]
        if not records:
            raise TaskNotFound(task)
        return records

    def list_tasks(self, after: str | None = None, limit: int = 100) -> list[TaskSummary]:
        """See `Store.list_tasks`."""
        at_least_one("limit", limit)
        page = (
            select(
                VersionRow.task,
                func.max(VersionRow.version).label("newest"),
                func.count().label("versions"),
            )
            .group_by(VersionRow.task)
            .order_by(VersionRow.task)
            .limit(limit)
        )
        if after is not None:
            page = page.where(VersionRow.task > after)
        tasks = page.subquery()
        newest = (
            select(VersionRow, tasks.c.versions)
            .join(
                tasks,
                and_(VersionRow.task == tasks.c.task, VersionRow.version == tasks.c.newest),
            )
            .order_by(VersionRow.task)
        )
        aliases = (
            select(AliasRow)
            .where(AliasRow.task.in_(select(tasks.c.task)))
            .order_by(AliasRow.task, AliasRow.alias)
        )
        with self.reading() as session:
            by_task: dict[str, list[AliasRecord]] = {}
            for alias in session.scalars(aliases):
                by_task.setdefault(alias.task, []).append(alias.record())
            return [
                TaskSummary(row.task, row.record(), versions, tuple(by_task.get(row.task, ())))
                for row, versions in session.execute(newest)
            ]

    def artefact(self, task: str, version: int) -> bytes:
        """See `Store.artefact`."""
        with self.reading() as session:
            version_row(session, task, version)
            row = session.get_one(ArtefactRow, (task, version))
            return row.content

    def evaluation(self, task: str, version: int) -> Mapping[str, Any] | None:
        """See `Store.evaluation`."""
        with self.reading() as session:
            version_row(session, task, version)
            row = session.get(EvaluationRow, (task, version))
            if row is None:
                return None
            if not isinstance(row.report, dict):
                raise DamagedRecord(task, version, ("evaluation",))
            return row.report

    def extent(self) -> Extent:
        """See `Store.extent`."""
        # A size that has decayed counts as none; a column of integers may hold anything in SQLite.
        statement = select(func.count(), func.coalesce(func.sum(VersionRow.size), 0))
        with self.reading() as session:
            versions, size = session.execute(statement).one()
            return Extent(versions, int(size))

    def iter_artefacts(self) -> Iterator[tuple[VersionRecord, bytes]]:
        """See `Store.iter_artefacts`."""
        statement = (
            select(VersionRow, ArtefactRow.content)
            .join(
                ArtefactRow,
                and_(
                    VersionRow.task == ArtefactRow.task,
                    VersionRow.version == ArtefactRow.version,
                ),
            )
            .order_by(VersionRow.task, VersionRow.version)
            .execution_options(yield_per=STREAM_ROWS)
        )
        with self.reading() as session:
            for row, content in session.execute(statement):
                yield row.salvaged(), content

    def delete_version(self, task: str, version: int) -> Removal:
        """See `Store.delete_version`."""
        with self.writing() as session:
            version_row(session, task, version)
            return self.remove(session, task, version)

    def delete_task(self, task: str) -> Removal:
        """See `Store.delete_task`."""
        with self.writing() as session:
            require_task(session, task)
            return self.remove(session, task, None)

    def remove(self, session: Session, task: str, version: int | None) -> Removal:
        """Delete a version, or all of a task's, with its aliases; log each.

        Aliases go first, also in the log, so that no follower sees one that points at nothing.
        """
        of_alias = [AliasRow.task == task]
        of_version = [VersionRow.task == task]
        if version is not None:
            of_alias.append(AliasRow.version == version)
            of_version.append(VersionRow.version == version)
        aliases = tuple(
            row.record()
            for row in session.scalars(select(AliasRow).where(*of_alias).order_by(AliasRow.alias))
        )
        versions = tuple(
            session.scalars(
                select(VersionRow.version).where(*of_version).order_by(VersionRow.version)
            )
        )
        at = self.now()
        session.execute(delete(AliasRow).where(*of_alias))
        session.execute(delete(VersionRow).where(*of_version))
        for alias in aliases:
            log.append(session, "alias_deleted", task, alias.version, at, alias.alias)
        for number in versions:
            log.append(session, "version_deleted", task, number, at)
        return Removal(versions, aliases)

    # --- aliases ----------------------------------------------------------------------------

    def get_alias(self, task: str, alias: str) -> AliasRecord:
        """See `Store.get_alias`."""
        with self.reading() as session:
            return alias_row(session, task, alias).record()

    def list_aliases(self, task: str | None = None) -> list[AliasRecord]:
        """See `Store.list_aliases`."""
        statement = select(AliasRow).order_by(AliasRow.task, AliasRow.alias)
        with self.reading() as session:
            if task is not None:
                require_task(session, task)
                statement = statement.where(AliasRow.task == task)
            return [row.record() for row in session.scalars(statement)]

    def set_alias(
        self, task: str, alias: str, version: int, expected_revision: int | None = None
    ) -> tuple[AliasRecord, bool]:
        """See `Store.set_alias`."""
        with self.writing() as session:
            version_row(session, task, version)
            current = session.get(AliasRow, (task, alias))
            revision = 0 if current is None else current.revision
            if expected_revision not in (None, revision):
                raise AliasConflict(task, alias, expected=expected_revision, actual=revision)
            if current is not None and current.version == version:
                return current.record(), False
            return point(session, task, alias, version, self.now()), current is None

    def delete_alias(
        self, task: str, alias: str, expected_revision: int | None = None
    ) -> AliasRecord:
        """See `Store.delete_alias`."""
        with self.writing() as session:
            row = alias_row(session, task, alias)
            record = row.record()
            if expected_revision not in (None, record.revision):
                raise AliasConflict(task, alias, expected=expected_revision, actual=record.revision)
            session.delete(row)
            log.append(session, "alias_deleted", task, record.version, self.now(), alias)
        return record

    # --- the change log, notes, life ----------------------------------------------------------

    def head_sequence(self) -> int:
        """See `Store.head_sequence`."""
        with self.reading() as session:
            return log.head(session)

    def changes_since(self, sequence: int, limit: int = 1000) -> list[Change]:
        """See `Store.changes_since`."""
        at_least_one("limit", limit)
        with self.reading() as session:
            return log.since(session, sequence, limit)

    def prune(self, keep: int) -> int:
        """See `Store.prune`."""
        at_least_one("keep", keep)
        with self.writing() as session:
            return log.prune(session, keep)

    def mark(self, key: str, value: str) -> None:
        """See `Store.mark`."""
        with self.writing() as session:
            session.merge(MarkRow(key=key, value=value))

    def marked(self, key: str) -> str | None:
        """See `Store.marked`."""
        with self.reading() as session:
            row = session.get(MarkRow, key)
            return None if row is None else row.value

    def ping(self) -> None:
        """See `Store.ping`."""
        self.head_sequence()

    def close(self) -> None:
        """See `Store.close`."""
        self.closed = True
        self.engine.dispose()

    def now(self) -> datetime:
        """Return the clock's time in UTC."""
        return self.clock().astimezone(UTC)
