"""Training jobs, and what they add to a version."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

NAME = sa.String(63).with_variant(sa.String(63, collation="C"), "postgresql")
JOB = sa.String(30)


def upgrade() -> None:
    """Extend the versions, and create the tables of the jobs."""
    # Added in place: a copy of the table, with what refers to it, would gain nothing.
    held: sa.Column[bool] = sa.Column(
        "held", sa.Boolean(), server_default=sa.false(), nullable=False
    )
    op.add_column("versions", held)
    op.add_column("versions", sa.Column("job", JOB, nullable=True))
    op.create_table(
        "evaluations",
        sa.Column("task", NAME, nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("report", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["task", "version"], ["versions.task", "versions.version"], ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("task", "version"),
    )
    op.create_table(
        "jobs",
        sa.Column("id", JOB, nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("task", NAME, nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("turn", sa.Integer(), nullable=True),
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("crashes", sa.Integer(), nullable=False),
        sa.Column("worker", NAME, nullable=True),
        sa.Column("token", sa.String(64), nullable=True),
        sa.Column("warnings", sa.JSON(), nullable=False),
        sa.Column("progress", sa.JSON(), nullable=True),
        sa.Column("error", sa.JSON(), nullable=True),
        sa.Column("result", sa.JSON(), nullable=True),
        sa.Column("idempotency_key", sa.String(255), nullable=True),
        sa.Column("idempotency_digest", sa.String(64), nullable=True),
        sa.CheckConstraint("length(idempotency_key) BETWEEN 1 AND 255", name="key_length"),
        sa.CheckConstraint(
            "(status = 'running') = (token IS NOT NULL)", name="running_under_a_token"
        ),
        sa.CheckConstraint(
            "(status IN ('succeeded', 'failed', 'cancelled')) = (finished_at IS NOT NULL)",
            name="finished_when_ended",
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("sequence"),
        sa.UniqueConstraint("idempotency_key"),
    )
    op.create_index("ix_jobs_status", "jobs", ["status", "turn"])
    op.create_table(
        "job_files",
        sa.Column("job", JOB, nullable=False),
        sa.Column("split", sa.String(16), nullable=False),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job", "split"),
    )
    op.create_table(
        "job_events",
        sa.Column("job", JOB, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("level", sa.String(16), nullable=False),
        sa.Column("type", sa.String(16), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job", "number"),
    )
    op.create_table(
        "job_checkpoints",
        sa.Column("job", JOB, nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job"),
    )
    op.create_table(
        "workers",
        sa.Column("name", NAME, nullable=False),
        sa.Column("token", sa.String(64), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("taken_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("released", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
        sa.UniqueConstraint("token"),
    )
