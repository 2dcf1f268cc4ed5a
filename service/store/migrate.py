"""Bring a database to the schema of this release."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from service.store.errors import SchemaTooNew

MIGRATIONS = Path(__file__).parent / "migrations"


def upgrade(connection: Connection) -> None:
    """Run the migrations that the database lacks; none where it is up to date.

    Args:
        connection: In a transaction that excludes every other writer. The caller commits it, so
            that a database is never seen half migrated.

    Raises:
        SchemaTooNew: If the database is at a revision this release does not know.
    """
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection

    scripts = ScriptDirectory.from_config(config)
    newest = scripts.get_current_head()
    assert newest is not None, "the migrations have one head"
    known = {script.revision for script in scripts.walk_revisions()}
    for found in MigrationContext.configure(connection).get_current_heads():
        if found not in known:
            raise SchemaTooNew(found, newest)
    command.upgrade(config, "head")
