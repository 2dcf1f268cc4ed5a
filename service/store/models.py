"""The tables.

    tasks 1─* versions 1─1 artefacts       changes (the log)
                      1─? evaluations      marks   (the service's own notes)
                      1─* aliases

A row of `tasks` outlives its versions: it holds the last number given out. Bytes have a table of
their own, so that no listing reads them. The migrations build these tables, and those of
`service.jobs.tables` in the same database; a test holds the two equal.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, get_args

from sqlalchemy import (
    JSON,
    Boolean,
    CheckConstraint,
    DateTime,
    Dialect,
    ForeignKey,
    ForeignKeyConstraint,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    false,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from service.store.base import AliasRecord, Change, ChangeKind, Source, VersionRecord
from service.store.errors import DamagedRecord

EPOCH = datetime.fromtimestamp(0, UTC)
"""Stands for a time that cannot be read."""

NAME_LENGTH = 63
DIGEST_LENGTH = 64
JOB_LENGTH = 30

# Bytewise order everywhere, so that paging by name agrees between databases.
NAME = String(NAME_LENGTH).with_variant(String(NAME_LENGTH, collation="C"), "postgresql")


def tolerant(process: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    """A column's reader that gives None for what it cannot read.

    SQLite keeps anything in any column, disks decay, and one value that cannot be read must not
    keep the others of its query from being read.
    """

    def read(value: Any) -> Any:
        try:
            return value if process is None else process(value)
        except (ValueError, TypeError):
            return None

    return read


def told(time: datetime | None) -> datetime:
    """A time that is only told and nothing depends on."""
    return EPOCH if time is None else time


class UtcDateTime(TypeDecorator[datetime]):
    """An aware UTC time, also on databases that keep no time zone; None where it is unreadable."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
        """Read what can be read."""
        return tolerant(super().result_processor(dialect, coltype))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Convert to UTC."""
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Say that it is UTC where the database did not."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Document(TypeDecorator[dict[str, Any]]):
    """A JSON object; None where it is unreadable."""

    impl = JSON
    cache_ok = True

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
        """Read what can be read."""
        return tolerant(super().result_processor(dialect, coltype))


class Flag(TypeDecorator[bool]):
    """Yes or no; None where the database has something else."""

    impl = Boolean
    cache_ok = True

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
        """Read what can be read; 0 and 1 stand for the two where a database has no such type."""
        return lambda value: bool(value) if value in (0, 1) else None


class Content(TypeDecorator[bytes]):
    """Bytes; none where the database has something else, so that they fit no digest."""

    impl = LargeBinary
    cache_ok = True

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
        """Read what can be read."""
        process = tolerant(super().result_processor(dialect, coltype))

        def read(value: Any) -> bytes:
            content = process(value)
            return content if isinstance(content, bytes) else b""

        return read


class Base(DeclarativeBase):
    """Base of all rows; every constraint has a name, so that a migration can address it."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(column_0_label)s",
            "uq": "uq_%(table_name)s_%(column_0_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class TaskRow(Base):
    """The counter of a task; never deleted, so that no number is given out twice."""

    __tablename__ = "tasks"
    __table_args__ = (
        CheckConstraint(f"length(name) BETWEEN 1 AND {NAME_LENGTH}", name="name_length"),
        CheckConstraint("last_version > 0", name="last_version_positive"),
    )

    name: Mapped[str] = mapped_column(NAME, primary_key=True)
    last_version: Mapped[int] = mapped_column(Integer)


class VersionRow(Base):
    """A live version."""

    __tablename__ = "versions"
    __table_args__ = (
        UniqueConstraint("task", "digest", name="uq_versions_task_digest"),
        CheckConstraint("version > 0", name="version_positive"),
        CheckConstraint(f"length(digest) = {DIGEST_LENGTH}", name="digest_length"),
        CheckConstraint("size >= 0", name="size_not_negative"),
    )

    task: Mapped[str] = mapped_column(NAME, ForeignKey("tasks.name"), primary_key=True)
    version: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    digest: Mapped[str] = mapped_column(String(DIGEST_LENGTH))
    manifest: Mapped[dict[str, Any]] = mapped_column(Document)
    size: Mapped[int] = mapped_column(Integer)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    source: Mapped[Source] = mapped_column(String(16))
    held: Mapped[bool] = mapped_column(Flag, server_default=false())
    job: Mapped[str | None] = mapped_column(String(JOB_LENGTH))

    def record(self) -> VersionRecord:
        """Return the row as callers see it.

        Raises:
            DamagedRecord: If a column holds what was never written there.
        """
        columns = self.damaged_columns()
        if columns:
            raise DamagedRecord(self.task, self.version, columns)
        return self.salvaged()

    def salvaged(self) -> VersionRecord:
        """Return the row with something harmless in the place of what is damaged."""
        columns = self.damaged_columns()
        return VersionRecord(
            task=self.task,
            version=self.version,
            digest=self.digest,
            manifest={} if "manifest" in columns else self.manifest,
            size=0 if "size" in columns else self.size,
            created_at=told(self.created_at),
            source="upload" if "source" in columns else self.source,
            # Not held: a version that is passed over is a rollback that nobody ordered.
            held="held" not in columns and self.held,
            job=None if "job" in columns else self.job,
            damaged=columns,
        )

    def damaged_columns(self) -> tuple[str, ...]:
        """Return the names of the columns that hold what was never written there."""
        sound = {
            "manifest": isinstance(self.manifest, dict),
            "size": isinstance(self.size, int),
            "created_at": isinstance(self.created_at, datetime),
            "source": self.source in get_args(Source),
            "held": isinstance(self.held, bool),
            "job": self.job is None or isinstance(self.job, str),
        }
        return tuple(name for name, good in sound.items() if not good)


class ArtefactRow(Base):
    """The bytes of a live version; they go when it goes."""

    __tablename__ = "artefacts"
    __table_args__ = (
        ForeignKeyConstraint(
            ["task", "version"], ["versions.task", "versions.version"], ondelete="CASCADE"
        ),
    )

    task: Mapped[str] = mapped_column(NAME, primary_key=True)
    version: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    content: Mapped[bytes] = mapped_column(Content)


class EvaluationRow(Base):
    """How good a live version was found to be; it goes when the version goes."""

    __tablename__ = "evaluations"
    __table_args__ = (
        ForeignKeyConstraint(
            ["task", "version"], ["versions.task", "versions.version"], ondelete="CASCADE"
        ),
    )

    task: Mapped[str] = mapped_column(NAME, primary_key=True)
    version: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    report: Mapped[dict[str, Any]] = mapped_column(Document)


class AliasRow(Base):
    """An alias; the database refuses to delete a version from under it."""

    __tablename__ = "aliases"
    __table_args__ = (
        ForeignKeyConstraint(["task", "version"], ["versions.task", "versions.version"]),
        CheckConstraint(f"length(alias) BETWEEN 1 AND {NAME_LENGTH}", name="alias_length"),
    )

    task: Mapped[str] = mapped_column(NAME, primary_key=True)
    alias: Mapped[str] = mapped_column(NAME, primary_key=True)
    version: Mapped[int] = mapped_column(Integer)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)
    revision: Mapped[int] = mapped_column(Integer)

    def record(self) -> AliasRecord:
        """Return the row as callers see it."""
        return AliasRecord(
            task=self.task,
            alias=self.alias,
            version=self.version,
            updated_at=told(self.updated_at),
            revision=self.revision,
        )


class ChangeRow(Base):
    """An entry of the change log; written once, in the transaction of the change it tells of."""

    __tablename__ = "changes"

    sequence: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    kind: Mapped[ChangeKind] = mapped_column(String(16))
    task: Mapped[str] = mapped_column(NAME)
    version: Mapped[int] = mapped_column(Integer)
    alias: Mapped[str | None] = mapped_column(NAME)
    at: Mapped[datetime] = mapped_column(UtcDateTime)

    def record(self) -> Change:
        """Return the row as callers see it."""
        return Change(
            sequence=self.sequence,
            kind=self.kind,
            task=self.task,
            version=self.version,
            alias=self.alias,
            at=told(self.at),
        )


class MarkRow(Base):
    """A note of the service's own."""

    __tablename__ = "marks"
    __table_args__ = (
        CheckConstraint(f"length(key) BETWEEN 1 AND {NAME_LENGTH}", name="key_length"),
    )

    key: Mapped[str] = mapped_column(NAME, primary_key=True)
    value: Mapped[str] = mapped_column(Text)


def table_of(row: type[Base]) -> Table:
    """Return the table of a row, for statements that go by the connection."""
    table = row.__table__
    assert isinstance(table, Table), "every row has a table of its own"
    return table
