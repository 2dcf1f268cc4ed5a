"""Open the store that a URL or a data directory names."""

from collections.abc import Callable
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from service.store.base import Store
from service.store.errors import StoreError, UnsupportedUrl
from service.store.sqlite import SqliteStore
from service.store.translate import translated

DATABASE_NAME = "capsules.sqlite"
"""The database's file in a data directory."""


def open_store(location: str | Path) -> Store:
    """Open a store and bring its schema up to date; the caller closes it.

    Args:
        location: A data directory, created where it is missing, or a URL: `sqlite:///relative`
            or `sqlite:////absolute/path/of/file`.

    Raises:
        UnsupportedUrl: If no implementation serves the URL.
        SchemaTooNew: If a newer release wrote the database.
        StoreUnavailable: If it cannot be read, written or created.
    """
    if isinstance(location, Path) or "://" not in location:
        return open_sqlite(Path(location) / DATABASE_NAME)
    try:
        url = make_url(location)
    except ArgumentError as error:
        raise UnsupportedUrl("store URL: not a URL; write scheme://...") from error
    scheme = url.get_backend_name()
    if scheme not in OPENERS:
        raise UnsupportedUrl(
            f"store URL: no store for scheme {scheme!r}; use a data directory or one of "
            f"{', '.join(OPENERS)}"
        )
    return OPENERS[scheme](url)


def open_sqlite_url(url: URL) -> Store:
    """Open the file a `sqlite:` URL names.

    Raises:
        UnsupportedUrl: If it names no file, or carries what this store decides itself.
    """
    if url.database in (None, "", ":memory:") or url.query or url.host:
        raise UnsupportedUrl(
            f"store URL: {url.render_as_string()!r} is not a plain file; write sqlite:///path, "
            "without host or options"
        )
    return open_sqlite(Path(url.database))


def open_sqlite(path: Path) -> Store:
    """Open a SQLite file, made with its folder where missing."""
    with translated():
        path.parent.mkdir(parents=True, exist_ok=True)
    store = SqliteStore(path)
    try:
        store.migrate()
    except StoreError:
        store.close()
        raise
    return store


OPENERS: dict[str, Callable[[URL], Store]] = {"sqlite": open_sqlite_url}
"""How each URL scheme is opened; a new implementation adds its own here."""
