"""The tables of the jobs, in the database of the capsules.

    jobs 1─* job_files          (a split's rows)      workers (the slots)
         1─* job_events
         1─? job_checkpoints

Bytes have tables of their own, so that no listing reads them. The finished epochs are the events of
type `metrics`. `service.store.migrations` builds these tables; a test holds the two equal.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, Integer, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from service.jobs.records import EventType, Level, Split, Status
from service.store.models import (
    DIGEST_LENGTH,
    JOB_LENGTH,
    NAME,
    Base,
    Content,
    Document,
    Flag,
    UtcDateTime,
)

TOKEN_LENGTH = 64
KEY_LENGTH = 255

JOB = String(JOB_LENGTH)
OPTIONAL = Document(none_as_null=True)


class JobRow(Base):
    """A job.

    `sequence` is the order of submission, `turn` that of the queue: kept by a job that a worker
    gives back, so that it does not lose its place. `token` is that of the worker whose claim holds.
    """

    __tablename__ = "jobs"
    __table_args__ = (
        CheckConstraint(f"length(idempotency_key) BETWEEN 1 AND {KEY_LENGTH}", name="key_length"),
        CheckConstraint("(status = 'running') = (token IS NOT NULL)", name="running_under_a_token"),
        CheckConstraint(
            "(status IN ('succeeded', 'failed', 'cancelled')) = (finished_at IS NOT NULL)",
            name="finished_when_ended",
        ),
        Index(None, "status", "turn"),
    )

    id: Mapped[str] = mapped_column(JOB, primary_key=True)
    sequence: Mapped[int] = mapped_column(Integer, unique=True)
    task: Mapped[str] = mapped_column(NAME)
    spec: Mapped[dict[str, Any] | None] = mapped_column(Document, nullable=False)
    status: Mapped[Status] = mapped_column(String(16))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    turn: Mapped[int | None] = mapped_column(Integer)
    run: Mapped[int] = mapped_column(Integer)
    crashes: Mapped[int] = mapped_column(Integer)
    worker: Mapped[str | None] = mapped_column(NAME)
    token: Mapped[str | None] = mapped_column(String(TOKEN_LENGTH))
    warnings: Mapped[Any] = mapped_column(Document, nullable=False)
    progress: Mapped[Any] = mapped_column(OPTIONAL, nullable=True)
    error: Mapped[Any] = mapped_column(OPTIONAL, nullable=True)
    result: Mapped[Any] = mapped_column(OPTIONAL, nullable=True)
    idempotency_key: Mapped[str | None] = mapped_column(String(KEY_LENGTH), unique=True)
    idempotency_digest: Mapped[str | None] = mapped_column(String(DIGEST_LENGTH))


class FileRow(Base):
    """One split's rows; `facts` stand before the bytes, so that they are read without them."""

    __tablename__ = "job_files"

    job: Mapped[str] = mapped_column(
        JOB, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True
    )
    split: Mapped[Split] = mapped_column(String(16), primary_key=True)
    facts: Mapped[Any] = mapped_column(Document, nullable=False)
    content: Mapped[bytes] = mapped_column(Content)


class EventRow(Base):
    """Something that happened to a job; written once."""

    __tablename__ = "job_events"

    job: Mapped[str] = mapped_column(
        JOB, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True
    )
    number: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    at: Mapped[datetime] = mapped_column(UtcDateTime)
    level: Mapped[Level] = mapped_column(String(16))
    type: Mapped[EventType] = mapped_column(String(16))
    message: Mapped[str] = mapped_column(Text)
    data: Mapped[Any] = mapped_column(Document, nullable=False)


class CheckpointRow(Base):
    """The state of a job after its last finished epoch."""

    __tablename__ = "job_checkpoints"

    job: Mapped[str] = mapped_column(
        JOB, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True
    )
    epoch: Mapped[int] = mapped_column(Integer)
    content: Mapped[bytes] = mapped_column(Content)


class SlotRow(Base):
    """A slot for a worker process; never deleted. `taken_at` is when its token took it."""

    __tablename__ = "workers"

    name: Mapped[str] = mapped_column(NAME, primary_key=True)
    token: Mapped[str] = mapped_column(String(TOKEN_LENGTH), unique=True)
    host: Mapped[str] = mapped_column(Text)
    pid: Mapped[int] = mapped_column(Integer)
    taken_at: Mapped[datetime] = mapped_column(UtcDateTime)
    seen_at: Mapped[datetime] = mapped_column(UtcDateTime)
    released: Mapped[bool] = mapped_column(Flag)
