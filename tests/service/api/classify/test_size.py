import time
from collections.abc import Sequence

import orjson
import pytest

from capsules.template import Template
from service.api.classify.rows import Plan, Row
from service.api.classify.size import SCORE_BYTES, check_size
from service.engine.records import Served
from service.errors import NotFound, ServiceError, Unprocessable

MIB = 1024 * 1024


def capsule(labels: Sequence[str]) -> Served:
    return Served("task", 1, "d" * 64, tuple(labels), Template("{text}"), 20)


def named(count: int, characters: int = 8) -> list[str]:
    return [f"{number:0{characters}}" for number in range(count)]


def size(
    labels: Sequence[str], rows: int, limit: int, top_k: int | None = None, key: str = "text"
) -> int:
    plan = Plan("a", [Row("a", "task", "x", f"{key}.{index}") for index in range(rows)])
    return check_size(plan, {"a": capsule(labels)}, top_k, limit)


def test_scores_are_counted_over_the_rows_that_have_a_capsule() -> None:
    rows = [Row(task, "tasks.0", "x", "text") for task in ("a", "b", "a", "c")]
    found: dict[str, Served | ServiceError] = {
        "a": capsule(named(2)),
        "b": capsule(named(5)),
        "c": NotFound("None.", code="task_not_found"),
    }
    for limit in (1000, MIB):
        assert check_size(Plan(None, rows), found, None, limit) == 9


@pytest.mark.parametrize(
    ("labels", "rows", "top_k"),
    [
        (named(150, 12), 1024, None),
        (named(256), 1024, None),
        (named(10_000), 1, None),
        (named(10_000, 256), 10, None),
        (named(10_000, 256), 100, 10),
        (named(1000), 1024, 1),
    ],
)
def test_what_fits_by_default(labels: list[str], rows: int, top_k: int | None) -> None:
    assert size(labels, rows, 32 * MIB, top_k) == len(labels) * rows


@pytest.mark.parametrize(
    ("labels", "rows", "top_k", "field", "remedy"),
    [
        (named(10_000), 1024, None, "text", "send fewer texts"),
        (named(10_000), 1024, 1, "text", "send fewer texts"),
        (named(10_000), 90, None, "top_k", "fewer labels with top_k"),
        (named(10_000, 256), 20, None, "top_k", "fewer labels with top_k"),
        (["\N{GRINNING FACE}" * 256] * 256, 1024, None, "top_k", "fewer labels with top_k"),
        (["\x01" * 256] * 1000, 1000, 20, "top_k", "fewer labels with top_k"),
    ],
)
def test_what_does_not(
    labels: list[str], rows: int, top_k: int | None, field: str, remedy: str
) -> None:
    with pytest.raises(Unprocessable) as refused:
        size(labels, rows, 32 * MIB, top_k)
    assert (refused.value.code, refused.value.field) == ("reply_too_large", field)
    assert remedy in refused.value.detail
    assert str(32 * MIB) in refused.value.detail


def test_the_texts_are_named_as_the_client_does() -> None:
    with pytest.raises(Unprocessable) as refused:
        size(named(100), 100, 1000, key="inputs")
    assert refused.value.field == "inputs"


@pytest.mark.parametrize("top_k", [None, 1, 5, 30])
@pytest.mark.parametrize(
    "labels", [named(20), ["\x01" * 200, *named(19)], ["\N{GRINNING FACE}" * 200, *named(19)]]
)
def test_a_reply_is_never_larger_than_was_told(labels: list[str], top_k: int | None) -> None:
    rows = 7
    probs = [0.12345678901234567] * 20
    sent = sorted(labels, key=lambda label: len(orjson.dumps(label)), reverse=True)[:top_k]
    written = rows * (len(orjson.dumps(sent)) + len(orjson.dumps(probs[:top_k])))
    assert written > 7 * 20
    with pytest.raises(Unprocessable):
        size(labels, rows, written - 1, top_k)
    assert size(labels, rows, 40 * 20 * rows + 6 * 200 * 20 * rows, top_k) == 20 * rows


def test_small_and_hostile_requests_are_judged_at_once() -> None:
    labels = named(10_000, 256)
    plan = Plan(None, [Row(str(row), "tasks.0", "x", "text") for row in range(1024)])
    found = {row.reference: capsule(labels) for row in plan.rows}
    started = time.process_time()
    with pytest.raises(Unprocessable):
        check_size(plan, found, None, 32 * MIB)
    assert time.process_time() - started < 0.1
    assert 1024 * 10_000 * SCORE_BYTES > 32 * MIB
