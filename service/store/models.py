"""The tables.

    tasks 1─* versions 1─1 artefacts       changes (the log)
                      1─* aliases          marks   (the service's own notes)

A row of `tasks` outlives its versions: it holds the last number given out. Bytes have a table of
their own, so that no listing reads them. The migrations build these tables; a test holds the two
equal.
"""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    CheckConstraint,
    DateTime,
    Dialect,
    ForeignKey,
    ForeignKeyConstraint,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Text,
    TypeDecorator,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from service.store.base import AliasRecord, Change, ChangeKind, Source, VersionRecord

NAME_LENGTH = 63
DIGEST_LENGTH = 64

# Bytewise order everywhere, so that paging by name agrees between databases.
NAME = String(NAME_LENGTH).with_variant(String(NAME_LENGTH, collation="C"), "postgresql")


class UtcDateTime(TypeDecorator[datetime]):
    """An aware UTC time, also on databases that keep no time zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Convert to UTC."""
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Say that it is UTC where the database did not."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


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
    manifest: Mapped[dict[str, Any]] = mapped_column(JSON)
    size: Mapped[int] = mapped_column(Integer)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    source: Mapped[Source] = mapped_column(String(16))

    def record(self) -> VersionRecord:
        """Return the row as callers see it."""
        return VersionRecord(
            task=self.task,
            version=self.version,
            digest=self.digest,
            manifest=self.manifest,
            size=self.size,
            created_at=self.created_at,
            source=self.source,
        )


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
    content: Mapped[bytes] = mapped_column(LargeBinary)


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
            updated_at=self.updated_at,
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
            at=self.at,
        )


class MarkRow(Base):
    """A note of the service's own."""

    __tablename__ = "marks"
    __table_args__ = (
        CheckConstraint(f"length(key) BETWEEN 1 AND {NAME_LENGTH}", name="key_length"),
    )

    key: Mapped[str] = mapped_column(NAME, primary_key=True)
    value: Mapped[str] = mapped_column(Text)
