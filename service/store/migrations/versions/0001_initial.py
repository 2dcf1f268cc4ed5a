"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

NAME = sa.String(63).with_variant(sa.String(63, collation="C"), "postgresql")


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "tasks",
        sa.Column("name", NAME, nullable=False),
        sa.Column("last_version", sa.Integer(), nullable=False),
        sa.CheckConstraint("length(name) BETWEEN 1 AND 63", name="name_length"),
        sa.CheckConstraint("last_version > 0", name="last_version_positive"),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "versions",
        sa.Column("task", NAME, nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("manifest", sa.JSON(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("source", sa.String(16), nullable=False),
        sa.CheckConstraint("version > 0", name="version_positive"),
        sa.CheckConstraint("length(digest) = 64", name="digest_length"),
        sa.CheckConstraint("size >= 0", name="size_not_negative"),
        sa.ForeignKeyConstraint(["task"], ["tasks.name"]),
        sa.PrimaryKeyConstraint("task", "version"),
        sa.UniqueConstraint("task", "digest", name="uq_versions_task_digest"),
    )
    op.create_table(
        "artefacts",
        sa.Column("task", NAME, nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["task", "version"], ["versions.task", "versions.version"], ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("task", "version"),
    )
    op.create_table(
        "aliases",
        sa.Column("task", NAME, nullable=False),
        sa.Column("alias", NAME, nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.CheckConstraint("length(alias) BETWEEN 1 AND 63", name="alias_length"),
        sa.ForeignKeyConstraint(["task", "version"], ["versions.task", "versions.version"]),
        sa.PrimaryKeyConstraint("task", "alias"),
    )
    op.create_table(
        "changes",
        sa.Column("sequence", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("task", NAME, nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("alias", NAME, nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("sequence"),
    )
    op.create_table(
        "marks",
        sa.Column("key", NAME, nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.CheckConstraint("length(key) BETWEEN 1 AND 63", name="key_length"),
        sa.PrimaryKeyConstraint("key"),
    )
