"""The store in one SQLite file: the embedded default."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from service.store.additions import Run
from service.store.compiled_statement import CompiledStatement, Statement
from service.store.errors import StoreUnavailable
from service.store.sql import SqlStore, utc_now

BEGIN = "sqlite_begin"
"""Execution option of a connection: the statement that begins its transactions."""

BEGIN_WRITING = "BEGIN IMMEDIATE"

PATIENCE_S = 5.0
"""How long a call waits for another writer, or for a free connection, before it gives up."""


class SqliteStore(SqlStore):
    """A `Store` in a SQLite file; several processes may share the file.

    Args:
        path: The database file; created where it is missing, in a folder that exists.
        clock: Tells the time that is stamped on what is written.
        patience_s: Seconds to wait for another writer before `StoreUnavailable`.
    """

    def __init__(
        self,
        path: Path,
        clock: Callable[[], datetime] = utc_now,
        patience_s: float = PATIENCE_S,
    ) -> None:
        super().__init__(sqlite_engine(path, patience_s), clock)
        self.patience_s = patience_s
        self.turn = Lock()
        self.prepared: dict[Statement, CompiledStatement] = {}

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """See `SqlStore.writing`."""
        with self.queued(), super().writing() as session:
            yield session

    @contextmanager
    def driving(self) -> Iterator[Run]:
        """See `SqlStore.driving`."""
        with self.queued(), self.opened(), closing(self.engine.raw_connection()) as connection:
            cursor = connection.cursor()
            cursor.execute(BEGIN_WRITING)
            yield partial(self.run, cursor)
            connection.commit()

    def run(self, cursor: DBAPICursor, statement: Statement, values: Mapping[str, Any], /) -> Any:
        """Run a statement; see `additions.Run`."""
        prepared = self.prepared.get(statement)
        if prepared is None:
            prepared = CompiledStatement(statement, self.engine.dialect, values)
            self.prepared[statement] = prepared
        try:
            rows = cursor.execute(prepared.text, prepared.values(values)).fetchall()
        except sqlite3.Error as error:
            # As SQLAlchemy would have it, so that it is translated like any other.
            raise DBAPIError.instance(prepared.text, None, error, sqlite3.Error) from error
        return rows[0][0] if rows else None

    @contextmanager
    def queued(self) -> Iterator[None]:
        """Wait for the other writers of this process, and have those that come later wait.

        Writers of this process queue here. SQLite makes those it turns away sleep and try again,
        which starves some of many for seconds, each with a connection in hand.
        """
        if not self.turn.acquire(timeout=self.patience_s):
            raise StoreUnavailable(
                f"the database was locked by other writers for {self.patience_s:g} s; retry"
            )
        try:
            yield
        finally:
            self.turn.release()

    def serialise(self, session: Session) -> None:
        """Take SQLite's one write lock, by beginning with it.

        A transaction that began as a reader may not become a writer once another has written.
        """
        session.connection(execution_options={BEGIN: BEGIN_WRITING})


def sqlite_engine(path: Path, patience_s: float) -> Engine:
    """Return an engine whose every connection is set up for durability and concurrency.

    Args:
        path: The database file.
        patience_s: Seconds to wait for a lock or for a pooled connection.
    """
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        connect_args={"timeout": patience_s},
        pool_size=8,
        max_overflow=32,
        pool_timeout=patience_s,
        hide_parameters=True,
    )
    event.listen(engine, "connect", lambda connection, _entry: configure(connection))
    event.listen(engine, "begin", begin)
    return engine


def configure(connection: sqlite3.Connection) -> None:
    """Set up a new connection.

    Raises:
        StoreUnavailable: If the file system cannot carry a write-ahead log.
    """
    # Text that has decayed must be readable: one row of it would end every query that meets it.
    connection.text_factory = decoded
    # The driver's own transaction control begins too late and never before a read or DDL.
    connection.isolation_level = None
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise StoreUnavailable(
            f"the database cannot use a write-ahead log (journal mode {mode!r}); put the data "
            "directory on a local file system"
        )
    # A commit returns only when it is on disk: NORMAL, the usual companion of WAL, may lose it.
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")


def decoded(text: bytes) -> str:
    """Return text with bytes that are no UTF-8 as escapes, which are not valid in JSON."""
    return text.decode(errors="backslashreplace")


def begin(connection: Connection) -> None:
    """Begin a transaction as its connection asks: a reader's snapshot unless told otherwise."""
    connection.exec_driver_sql(connection.get_execution_options().get(BEGIN, "BEGIN"))
