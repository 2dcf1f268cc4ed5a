"""Stores that are quick to have: no power is lost in a test, and an empty database is copied."""

from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path

from sqlalchemy import event

from service.store.open import DATABASE_NAME
from service.store.sql import utc_now
from service.store.sqlite import SqliteStore


def empty_database(folder: Path) -> Path:
    """A database with its tables and nothing in them; building one takes a while, so copy it."""
    path = folder / DATABASE_NAME
    with closing(SqliteStore(path)) as store:
        store.migrate()
    return path


def hasty_store(
    path: Path, clock: Callable[[], datetime] = utc_now, patience_s: float = 0.5
) -> SqliteStore:
    """A store that does not wait for the disk."""
    store = SqliteStore(path, clock, patience_s=patience_s)
    event.listen(
        store.engine,
        "connect",
        lambda connection, _entry: connection.execute("PRAGMA synchronous = OFF"),
    )
    return store
