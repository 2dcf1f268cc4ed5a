"""What only SQLite can get wrong."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import QueuePool, event, text

from service.store.additions import ADD_TASK, evaluate
from service.store.base import Extent
from service.store.errors import DamagedRecord, InvalidValue, StoreUnavailable
from service.store.models import EPOCH
from service.store.open import DATABASE_NAME, open_store
from service.store.sql import SqlStore
from service.store.sqlite import SqliteStore, configure
from tests.service.store.samples import add


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / DATABASE_NAME, patience_s=0.05)
    store.migrate()
    yield store
    store.close()


def pragma(store: SqlStore, name: str) -> object:
    with store.reading() as session:
        return session.scalar(text(f"PRAGMA {name}"))


class TestConnections:
    def test_every_one_is_durable(self, store: SqliteStore) -> None:
        with store.reading(), store.reading(), store.reading():  # three at a time
            assert pragma(store, "journal_mode") == "wal"
            assert pragma(store, "synchronous") == 2  # FULL
            assert pragma(store, "foreign_keys") == 1
            assert pragma(store, "busy_timeout") == 50

    def test_refuses_a_file_system_without_wal(self) -> None:
        with (
            closing(sqlite3.connect(":memory:")) as connection,
            pytest.raises(StoreUnavailable, match="local file system"),
        ):
            configure(connection)

    def test_parameters_stay_out_of_error_messages(self, store: SqliteStore) -> None:
        with (
            pytest.raises(StoreUnavailable) as caught,
            store.reading() as session,
        ):
            session.execute(text("SELECT * FROM nowhere WHERE x = :x"), {"x": "private words"})
        assert "nowhere" in str(caught.value)
        assert "private words" not in str(caught.value)
        assert "private words" not in str(caught.value.__cause__)


class TestDriving:
    """Transactions whose statements the driver runs as they are."""

    def add_tasks(self, store: SqliteStore, *names: str) -> None:
        with store.driving() as run:
            for name in names:
                run(ADD_TASK, {"name": name, "last_version": 7})

    def test_a_value_that_the_database_refuses_is_told_as_one(self, store: SqliteStore) -> None:
        with pytest.raises(InvalidValue, match="UNIQUE constraint failed") as caught:
            self.add_tasks(store, "spam", "private words", "private words")
        assert "private words" not in str(caught.value)
        assert "private words" not in str(caught.value.__cause__)
        assert add(store, "spam").version == 1  # nothing of it has stayed

    def test_no_other_writer_gets_in_between(self, store: SqliteStore, tmp_path: Path) -> None:
        with closing(SqliteStore(tmp_path / DATABASE_NAME, patience_s=0.05)) as other:
            with store.driving():
                for writer in (store, other):
                    with pytest.raises(StoreUnavailable, match="locked"):
                        add(writer)
            self.add_tasks(store, "spam")
            assert add(other).version == 8

    def test_is_over_once_the_store_is_closed(self, store: SqliteStore) -> None:
        store.close()
        with pytest.raises(StoreUnavailable, match="closed"), store.driving():
            pass

    def test_the_bytes_that_a_task_has_change_nothing(self, store: SqliteStore) -> None:
        record = add(store)
        head = store.head_sequence()
        assert add(store) == record
        assert store.head_sequence() == head
        assert add(store, artefact=b"two").version == 2


class TestTransactions:
    def test_a_reader_keeps_its_snapshot(self, store: SqliteStore) -> None:
        counting = text("SELECT count(*) FROM versions")
        with store.reading() as session:
            assert session.scalar(counting) == 0
            add(store)
            assert session.scalar(counting) == 0
        with store.reading() as session:
            assert session.scalar(counting) == 1

    def test_writing_excludes_other_processes_at_once(
        self, store: SqliteStore, tmp_path: Path
    ) -> None:
        with (
            closing(SqliteStore(tmp_path / DATABASE_NAME, patience_s=0.05)) as other,
            other.writing(),
            pytest.raises(StoreUnavailable, match="locked"),
            store.writing(),
        ):
            pytest.fail("two writers at a time")

    def test_writers_of_one_process_wait_without_a_connection(self, store: SqliteStore) -> None:
        with store.writing():
            with pytest.raises(StoreUnavailable, match="locked"), store.writing():
                pytest.fail("two writers at a time")
            assert isinstance(store.engine.pool, QueuePool)
            assert store.engine.pool.checkedout() == 1
        add(store)

    def test_a_failure_undoes_everything(self, store: SqliteStore) -> None:
        def write_and_fail() -> None:
            with store.writing() as session:
                session.execute(text("INSERT INTO marks VALUES ('key', 'value')"))
                raise RuntimeError

        with pytest.raises(RuntimeError):
            write_and_fail()
        assert store.marked("key") is None

    def test_an_alias_holds_its_version(self, store: SqliteStore) -> None:
        add(store)
        store.set_alias("spam", "prod", 1)
        with pytest.raises(ValueError, match="FOREIGN KEY"), store.writing() as session:
            session.execute(text("DELETE FROM versions"))

    def test_bytes_go_with_their_version(self, store: SqliteStore) -> None:
        add(store)
        store.delete_version("spam", 1)
        with store.reading() as session:
            assert session.scalar(text("SELECT count(*) FROM artefacts")) == 0

    def test_evaluations_go_with_their_version(self, store: SqliteStore) -> None:
        record = add(store)
        with store.writing() as session:
            evaluate(session, record, {"accuracy": 0.5})
        store.delete_task("spam")
        with store.reading() as session:
            assert session.scalar(text("SELECT count(*) FROM evaluations")) == 0

    def test_streaming_needs_no_sort(self, store: SqliteStore) -> None:
        """A sort would put every artefact into a temporary table before the first is seen."""
        statements: list[str] = []
        event.listen(
            store.engine,
            "before_cursor_execute",
            lambda _c, _cursor, statement, *_rest: statements.append(statement),
        )
        list(store.iter_artefacts())
        (select,) = [statement for statement in statements if "artefacts" in statement]
        with store.reading() as session:
            plan = session.execute(text(f"EXPLAIN QUERY PLAN {select}")).all()
        assert not [step for step in plan if "TEMP B-TREE" in step.detail]


class TestTrouble:
    def test_locked(self, store: SqliteStore, tmp_path: Path) -> None:
        add(store)
        with closing(sqlite3.connect(tmp_path / DATABASE_NAME)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailable, match="locked"):
                add(store, artefact=b"two")
            assert store.artefact("spam", 1) == b"one"
        assert add(store, artefact=b"two").version == 2

    def test_disk_full(self, store: SqliteStore) -> None:
        add(store)
        event.listen(
            store.engine,
            "checkout",
            lambda connection, *_rest: connection.execute("PRAGMA max_page_count = 40"),
        )
        with pytest.raises(StoreUnavailable, match="full"):
            add(store, artefact=bytes(500_000))
        assert [record.version for record in store.list_versions("spam")] == [1]
        assert add(store, artefact=b"small").version == 2

    def test_more_readers_than_connections(self, store: SqliteStore) -> None:
        add(store)
        streams = [store.iter_artefacts() for _ in range(41)]
        for stream in streams[:-1]:
            next(stream)
        with pytest.raises(StoreUnavailable, match="limit"):
            next(streams[-1])
        streams.clear()
        store.ping()

    def test_not_a_database(self, tmp_path: Path) -> None:
        (tmp_path / DATABASE_NAME).write_bytes(b"something else altogether " * 100)
        with pytest.raises(StoreUnavailable, match="not a database"):
            open_store(tmp_path)

    def test_damaged_pages(self, store: SqliteStore, tmp_path: Path) -> None:
        add(store)
        store.close()
        path = tmp_path / DATABASE_NAME
        content = path.read_bytes()
        path.write_bytes(content[:4096] + b"\xaa" * (len(content) - 4096))
        with pytest.raises(StoreUnavailable, match="malformed"):
            open_store(tmp_path)

    @pytest.mark.parametrize(
        ("column", "value", "salvaged"),
        [
            ("manifest", "'no JSON'", {}),
            ("manifest", "CAST(X'7B22FF223A317D' AS TEXT)", {}),
            ("manifest", "'[]'", {}),
            ("created_at", "'no time'", EPOCH),
            ("created_at", "7", EPOCH),
            ("size", "'no number'", 0),
            ("source", "'no source'", "upload"),
            ("held", "'perhaps'", False),
            ("held", "7", False),
            ("job", "X'FF00'", None),
        ],
    )
    def test_a_row_that_cannot_be_read(
        self, store: SqliteStore, column: str, value: str, salvaged: Any
    ) -> None:
        before = add(store, "a")
        damaged = add(store, "b")
        with store.writing() as session:
            session.execute(text(f"UPDATE versions SET {column} = {value} WHERE task = 'b'"))
        assert list(store.iter_artefacts()) == [
            (before, b"one"),
            (replace(damaged, damaged=(column,), **{column: salvaged}), b"one"),
        ]
        assert store.extent() == Extent(versions=2, size=3 if column == "size" else 6)
        assert store.get_version("a", 1) == before
        assert store.artefact("b", 1) == b"one"
        for read in (
            lambda: store.get_version("b", 1),
            lambda: store.list_versions("b"),
            lambda: store.list_tasks(),
            lambda: add(store, "b"),
        ):
            with pytest.raises(DamagedRecord, match=column) as caught:
                read()
            assert (caught.value.task, caught.value.version) == ("b", 1)
        assert store.delete_version("b", 1).versions == (1,)
        assert add(store, "b").version == 2

    @pytest.mark.parametrize("value", ["'no JSON'", "'[]'", "X'FF'"])
    def test_an_evaluation_that_cannot_be_read(self, store: SqliteStore, value: str) -> None:
        record = add(store)
        with store.writing() as session:
            evaluate(session, record, {"accuracy": 0.5})
        with store.writing() as session:
            session.execute(text(f"UPDATE evaluations SET report = {value}"))
        with pytest.raises(DamagedRecord, match="evaluation"):
            store.evaluation("spam", 1)
        assert store.get_version("spam", 1) == record

    def test_text_that_is_no_utf8_is_escaped(self, store: SqliteStore) -> None:
        store.mark("key", "value")
        with store.writing() as session:
            session.execute(text("UPDATE marks SET value = CAST(X'C3A9FF' AS TEXT)"))
        assert store.marked("key") == "é\\xff"

    def test_data_directory_is_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "data").touch()
        with pytest.raises(StoreUnavailable, match="data"):
            open_store(tmp_path / "data")

    def test_database_is_a_directory(self, tmp_path: Path) -> None:
        (tmp_path / DATABASE_NAME).mkdir()
        with pytest.raises(StoreUnavailable, match="unable to open"):
            open_store(tmp_path)

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
    @pytest.mark.parametrize("directory", ["", "new"])
    def test_directory_without_permission(self, tmp_path: Path, directory: str) -> None:
        tmp_path.chmod(0o500)
        try:
            with pytest.raises(StoreUnavailable):
                open_store(tmp_path / directory)
        finally:
            tmp_path.chmod(0o700)

    def test_read_only_database(self, store: SqliteStore) -> None:
        add(store)
        event.listen(
            store.engine,
            "checkout",
            lambda connection, *_rest: connection.execute("PRAGMA query_only = ON"),
        )
        with pytest.raises(StoreUnavailable, match="readonly"):
            add(store, artefact=b"two")
        assert store.artefact("spam", 1) == b"one"


def test_times_are_those_of_the_clock_in_utc(tmp_path: Path) -> None:
    noon = datetime(2025, 6, 1, 12, 0, 0, 123456, tzinfo=timezone(timedelta(hours=5)))
    with closing(SqliteStore(tmp_path / DATABASE_NAME, clock=lambda: noon)) as store:
        store.migrate()
        written = add(store)
        read = store.get_version("spam", 1)
        alias, _ = store.set_alias("spam", "prod", 1)
        (change, _) = store.changes_since(0)
    assert read == written
    for time in (written.created_at, read.created_at, alias.updated_at, change.at):
        assert time == noon
        assert time.tzinfo is UTC
