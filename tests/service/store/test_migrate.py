import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, inspect, text

from service.jobs.spec import JobSpec
from service.jobs.sql import open_ledger
from service.jobs.tables import JobRow
from service.store import open_store
from service.store.errors import SchemaTooNew
from service.store.migrate import upgrade
from service.store.open import DATABASE_NAME
from service.store.sqlite import SqliteStore
from tests.service.store.samples import MANIFEST, add, digest_of

HERE = Path(__file__).parent
ROOT = HERE.parents[2]

METADATA = JobRow.metadata
"""All tables of the database: those of the store, and those of the jobs beside them."""


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[SqliteStore]:
    """A store whose database has nothing in it, not even tables."""
    store = SqliteStore(tmp_path / DATABASE_NAME)
    yield store
    store.close()


def schema(connection: Connection) -> dict[str, object]:
    inspector = inspect(connection)
    return {
        table: (
            inspector.get_pk_constraint(table),
            inspector.get_foreign_keys(table),
            inspector.get_unique_constraints(table),
            inspector.get_check_constraints(table),
            inspector.get_indexes(table),
        )
        for table in inspector.get_table_names()
        if table != "alembic_version"
    }


def test_builds_the_columns_of_the_models(empty: SqliteStore) -> None:
    empty.migrate()
    with empty.reading() as session:
        context = MigrationContext.configure(session.connection(), opts={"compare_type": True})
        assert compare_metadata(context, METADATA) == []


def test_builds_the_constraints_of_the_models(empty: SqliteStore, tmp_path: Path) -> None:
    """Not all of which Alembic's own comparison looks at."""
    empty.migrate()
    with empty.reading() as session:
        migrated = schema(session.connection())
    with closing(SqliteStore(tmp_path / "models.sqlite")) as other, other.writing() as session:
        METADATA.create_all(session.connection())
        assert migrated == schema(session.connection())
    assert set(migrated) == set(METADATA.tables)


def test_reopening_changes_nothing(tmp_path: Path) -> None:
    with closing(open_store(tmp_path)) as store:
        record = add(store)
    content = (tmp_path / DATABASE_NAME).read_bytes()
    for _ in range(2):
        with closing(open_store(tmp_path)) as store:
            assert store.list_versions("spam") == [record]
    assert (tmp_path / DATABASE_NAME).read_bytes() == content


def test_refuses_a_newer_database(empty: SqliteStore) -> None:
    empty.migrate()
    add(empty)
    with empty.writing() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(SchemaTooNew, match="start the release that wrote it") as caught:
        empty.migrate()
    assert caught.value.found == "9999"
    with empty.reading() as session:
        assert session.scalar(text("SELECT version_num FROM alembic_version")) == "9999"
        assert session.scalar(text("SELECT count(*) FROM versions")) == 1


class TestFirstRelease:
    """A database that was written by the first revision, with data in it."""

    @pytest.fixture
    def written(self, tmp_path: Path) -> Path:
        path = tmp_path / DATABASE_NAME
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript((HERE / "written_by_0001.sql").read_text())
        return path

    def test_is_brought_to_the_models(self, written: Path, empty: SqliteStore) -> None:
        empty.migrate()
        with empty.reading() as session:
            context = MigrationContext.configure(session.connection(), opts={"compare_type": True})
            assert compare_metadata(context, METADATA) == []
            assert session.scalar(text("PRAGMA integrity_check")) == "ok"
            assert session.execute(text("PRAGMA foreign_key_check")).all() == []

    def test_keeps_its_data(self, written: Path) -> None:
        with closing(open_store(written.parent)) as store:
            first, second = store.list_versions("spam")
            assert (first.version, first.digest) == (1, digest_of(b"one"))
            assert first.manifest == MANIFEST
            assert first.created_at == datetime(2026, 1, 2, 3, 4, 5, 678900, UTC)
            assert [record.source for record in (first, second)] == ["upload", "zoo"]
            contents = {(v.task, v.version): content for v, content in store.iter_artefacts()}
            assert contents == {("spam", 1): b"one", ("spam", 2): b"two", ("news", 1): b"one"}
            assert store.get_alias("spam", "prod").revision == 5
            assert store.head_sequence() == 6
            assert store.marked("zoo") == "loaded"
            assert add(store, artefact=b"four").version == 4

    def test_its_versions_are_not_held_and_of_no_job(self, written: Path) -> None:
        with closing(open_store(written.parent)) as store:
            for record, _ in store.iter_artefacts():
                assert (record.held, record.job, record.damaged) == (False, None, ())
                assert store.evaluation(record.task, record.version) is None

    def test_takes_jobs(self, written: Path) -> None:
        with closing(open_store(written.parent)) as store:
            ledger = open_ledger(store)
            job, _ = ledger.open(JobSpec(task="spam"))
            assert ledger.get(job.id) == job

    def test_still_written_by_a_server_that_has_not_been_restarted(self, written: Path) -> None:
        with closing(open_store(written.parent)) as store:
            with closing(sqlite3.connect(written)) as old, old:
                old.execute(
                    "INSERT INTO versions (task, version, digest, manifest, size, created_at,"
                    " source) SELECT task, 9, hex(randomblob(32)), manifest, size, created_at,"
                    " source FROM versions WHERE task = 'news'"
                )
                old.execute("UPDATE tasks SET last_version = 9 WHERE name = 'news'")
            record = store.get_version("news", 9)
            assert (record.held, record.job) == (False, None)


def test_interrupted_migration_leaves_nothing(empty: SqliteStore) -> None:
    def migrate_and_fail() -> None:
        with empty.writing() as session:
            upgrade(session.connection())
            assert inspect(session.connection()).get_table_names()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        migrate_and_fail()
    with empty.reading() as session:
        assert inspect(session.connection()).get_table_names() == []
    empty.migrate()
    add(empty)


def test_works_from_another_folder_and_a_package_elsewhere(tmp_path: Path) -> None:
    """As when installed: the scripts are found beside the code, whatever the path is."""
    site = tmp_path / "100% site"
    package = site / "service"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "store").symlink_to(ROOT / "service" / "store")
    code = "from service.store import open_store; open_store('data').ping()"
    subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={"PYTHONPATH": str(site)}, check=True
    )
    assert (tmp_path / "data" / DATABASE_NAME).exists()


def test_many_processes_may_open_a_new_database_at_once(tmp_path: Path) -> None:
    code = "import sys; from service.store import open_store; open_store(sys.argv[1]).ping()"
    processes = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "data")], cwd=ROOT)
        for _ in range(4)
    ]
    assert [process.wait() for process in processes] == [0] * 4
