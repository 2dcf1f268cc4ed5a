"""No foreign exception leaves the store."""

from collections.abc import Callable, Iterator
from pathlib import Path

import alembic.util.exc
import pytest
from sqlalchemy import exc, text
from sqlalchemy.exc import SQLAlchemyError

from service.store.base import Store
from service.store.errors import InvalidValue, StoreError, StoreUnavailable
from service.store.open import DATABASE_NAME
from service.store.sqlite import SqliteStore
from service.store.translate import translated
from tests.service.store.samples import add

CALLS: dict[str, Callable[[Store], object]] = {
    "add_version": add,
    "get_version": lambda store: store.get_version("spam", 1),
    "list_versions": lambda store: store.list_versions("spam"),
    "list_tasks": lambda store: store.list_tasks(),
    "artefact": lambda store: store.artefact("spam", 1),
    "evaluation": lambda store: store.evaluation("spam", 1),
    "extent": lambda store: store.extent(),
    "iter_artefacts": lambda store: list(store.iter_artefacts()),
    "delete_version": lambda store: store.delete_version("spam", 1),
    "delete_task": lambda store: store.delete_task("spam"),
    "get_alias": lambda store: store.get_alias("spam", "prod"),
    "list_aliases": lambda store: store.list_aliases(),
    "set_alias": lambda store: store.set_alias("spam", "prod", 1),
    "delete_alias": lambda store: store.delete_alias("spam", "prod"),
    "head_sequence": lambda store: store.head_sequence(),
    "changes_since": lambda store: store.changes_since(0),
    "prune": lambda store: store.prune(1),
    "mark": lambda store: store.mark("key", "value"),
    "marked": lambda store: store.marked("key"),
    "ping": lambda store: store.ping(),
}


def family(root: type[Exception]) -> list[type[Exception]]:
    return [root, *(kin for child in root.__subclasses__() for kin in family(child))]


def bare(kind: type[Exception]) -> Exception:
    """Return an exception without its constructor's arguments, which differ from class to class."""
    error = kind.__new__(kind, "what went wrong")
    vars(error).update(orig=None, statement=None, params=None, hide_parameters=True, detail=[])
    return error


@pytest.mark.parametrize(
    "kind",
    [
        kind
        for root in (SQLAlchemyError, alembic.util.exc.CommandError, OSError)
        for kind in family(root)
        if kind.__module__.startswith(("sqlalchemy", "alembic", "builtins"))
    ],
    ids=lambda kind: kind.__name__,
)
def test_every_foreign_exception_has_a_translation(kind: type[Exception]) -> None:
    error = bare(kind)
    with pytest.raises(StoreError) as caught, translated():
        raise error
    assert caught.value.__cause__ is error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (exc.OperationalError("SELECT", {}, ValueError("disk I/O error")), StoreUnavailable),
        (exc.DatabaseError("SELECT", {}, ValueError("malformed")), StoreUnavailable),
        (exc.TimeoutError("pool"), StoreUnavailable),
        (PermissionError("no"), StoreUnavailable),
        (exc.IntegrityError("INSERT", {}, ValueError("constraint")), InvalidValue),
        (exc.StatementError("not JSON", "INSERT", {}, TypeError("set")), InvalidValue),
        (OverflowError("too large"), InvalidValue),
        (exc.ProgrammingError("SELEKT", {}, ValueError("syntax")), StoreError),
        (exc.InvalidRequestError("misuse"), StoreError),
    ],
)
def test_kinds(error: Exception, expected: type[StoreError]) -> None:
    with pytest.raises(StoreError) as caught, translated():
        raise error
    assert type(caught.value) is expected


def test_message_has_the_cause_and_not_the_statement() -> None:
    error = exc.OperationalError("INSERT private", {"x": "private"}, ValueError("disk I/O error"))
    with (
        pytest.raises(StoreUnavailable, match="disk I/O error; check the disk") as caught,
        translated(),
    ):
        raise error
    assert "private" not in str(caught.value)


def test_driver_errors_are_those_given() -> None:
    with pytest.raises(StoreUnavailable), translated(ZeroDivisionError):
        raise ZeroDivisionError
    with pytest.raises(ZeroDivisionError), translated():
        raise ZeroDivisionError


@pytest.mark.parametrize("error", [StoreError("own"), InvalidValue("own"), KeyError("alien")])
def test_others_pass(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, translated():
        raise error
    assert caught.value is error


def test_calls_are_all_the_methods() -> None:
    methods = {name for name in vars(Store) if not name.startswith("_")}
    assert methods - set(CALLS) == {"close"}
    assert set(CALLS) <= methods


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / DATABASE_NAME, patience_s=0.05)
    store.migrate()
    add(store)
    yield store
    store.close()


@pytest.mark.parametrize("name", CALLS)
class TestEveryMethod:
    def test_closed(self, store: SqliteStore, name: str) -> None:
        store.close()
        with pytest.raises(StoreUnavailable):
            CALLS[name](store)

    def test_tables_gone(self, store: SqliteStore, name: str) -> None:
        with store.writing() as session:
            for table in (
                "aliases",
                "evaluations",
                "artefacts",
                "versions",
                "tasks",
                "changes",
                "marks",
            ):
                session.execute(text(f"DROP TABLE {table}"))
        with pytest.raises(StoreUnavailable, match="no such table"):
            CALLS[name](store)

    def test_file_damaged(self, store: SqliteStore, tmp_path: Path, name: str) -> None:
        store.close()
        path = tmp_path / DATABASE_NAME
        path.write_bytes(b"\xaa" * path.stat().st_size)
        damaged = SqliteStore(path, patience_s=0.05)
        try:
            with pytest.raises(StoreUnavailable, match="not a database"):
                CALLS[name](damaged)
        finally:
            damaged.close()
