from datetime import UTC, datetime, timedelta, timezone

import pytest
from sqlalchemy import bindparam, insert, select
from sqlalchemy.dialects import sqlite

from service.store.compiled_statement import CompiledStatement
from service.store.models import TaskRow, VersionRow, table_of

DIALECT = sqlite.dialect(paramstyle="qmark")
NOON = datetime(2026, 3, 4, 12, 30, tzinfo=timezone(timedelta(hours=2)))


def test_values_are_as_the_columns_have_them() -> None:
    given = {"created_at": NOON, "manifest": {"a": [1]}, "held": True, "version": 3, "task": "trec"}
    prepared = CompiledStatement(insert(table_of(VersionRow)), DIALECT, given)
    assert prepared.text == (
        "INSERT INTO versions (task, version, manifest, created_at, held) VALUES (?, ?, ?, ?, ?)"
    )
    task, version, manifest, created_at, held = prepared.values(given)
    assert (task, version, manifest, held) == ("trec", 3, '{"a": [1]}', 1)
    told = NOON.astimezone(UTC).replace(tzinfo=None)
    assert datetime.fromisoformat(created_at) == told


def test_values_that_the_statement_brings_along_need_not_be_given() -> None:
    statement = select(TaskRow.last_version + 5).where(TaskRow.name == bindparam("of_task"))
    prepared = CompiledStatement(statement, DIALECT, ["of_task"])
    assert prepared.values({"of_task": "trec"}) == [5, "trec"]
    assert prepared.values({"of_task": None}) == [5, None]


@pytest.mark.parametrize("given", [{}, {"of_task": "trec", "version": 3}, {"task": "trec"}])
def test_values_that_are_forgotten_or_unknown_are_refused(given: dict[str, object]) -> None:
    statement = select(TaskRow.last_version).where(TaskRow.name == bindparam("of_task"))
    compiled = CompiledStatement(statement, DIALECT, ["of_task"])
    with pytest.raises(TypeError, match="but the statement takes"):
        compiled.values(given)
