import math
import random
from typing import Any

import orjson
import pytest

from capsules.template import Template
from service.api.classify.reply import FEW_LABELS, Classified, compose, most_probable
from service.api.classify.rows import Plan, Row
from service.engine.records import RowAnswer, Served, Timings
from service.errors import InternalError, NotFound, ServiceError, Unprocessable

TIMINGS = Timings(tokenise=0.001, queue=0.002, forward=0.003)
CAPSULE = Served(
    task="trec",
    version=3,
    digest="d" * 64,
    labels=("no", "maybe", "yes"),
    template=Template("{premise} and {hypothesis}"),
    max_tokens=20,
)
ANSWER = RowAnswer(probs=(0.2, 0.5, 0.3), input_tokens=7, truncated=True)


def compose_all(
    *results: RowAnswer | ServiceError,
    text: Any = "x",
    top_k: int | None = None,
    model: str | None = "trec",
    capsule: Served | ServiceError = CAPSULE,
    large: bool = False,
) -> Classified:
    rows = [Row("trec@3", "task", text, f"text.{index}") for index in range(len(results))]
    plan = Plan(model, rows)
    return compose(plan, {"trec@3": capsule}, results, TIMINGS, "the-backbone", top_k, large=large)


def reply_of(classified: Classified) -> Any:
    return orjson.loads(classified.content)


def test_an_answer_is_complete() -> None:
    classified = compose_all(ANSWER)
    reply = reply_of(classified)
    assert reply["object"] == "list"
    assert reply["id"].startswith("classify-")
    assert reply["model"] == "trec"
    assert reply["usage"] == {"prompt_tokens": 7, "total_tokens": 7, "completion_tokens": 0}
    assert reply["data"] == [
        {
            "index": 0,
            "task": "trec",
            "version": 3,
            "digest": "d" * 64,
            "label": "maybe",
            "score": 0.5,
            "probs": [0.2, 0.5, 0.3],
            "labels": ["no", "maybe", "yes"],
            "num_classes": 3,
            "truncated": True,
            "input_tokens": 7,
            "error": None,
        }
    ]
    assert (classified.truncated, classified.row_errors) == (1, [])
    assert classified.timings is TIMINGS


@pytest.mark.parametrize(
    ("top_k", "labels", "probs"),
    [
        (1, ["maybe"], [0.5]),
        (2, ["maybe", "yes"], [0.5, 0.3]),
        (3, ["maybe", "yes", "no"], [0.5, 0.3, 0.2]),
        (100, ["maybe", "yes", "no"], [0.5, 0.3, 0.2]),
    ],
)
def test_the_best_labels_come_first(top_k: int, labels: list[str], probs: list[float]) -> None:
    (row,) = reply_of(compose_all(ANSWER, top_k=top_k))["data"]
    assert (row["labels"], row["probs"], row["num_classes"]) == (labels, probs, 3)
    assert (row["label"], row["score"]) == ("maybe", 0.5)


@pytest.mark.parametrize("top_k", [None, 2])
def test_a_large_reply_reads_like_a_small_one(top_k: int | None) -> None:
    bad = Unprocessable("Empty.", code="empty_text")
    replies = [
        reply_of(compose_all(ANSWER, bad, ANSWER, top_k=top_k, large=large))
        for large in (False, True)
    ]
    for reply in replies:
        assert reply.pop("id")
        assert reply.pop("created")
    assert replies[0] == replies[1]
    assert [row["index"] for row in replies[1]["data"]] == [0, 1, 2]


def test_of_equal_labels_the_first_in_the_head_wins() -> None:
    tie = RowAnswer(probs=(0.25, 0.5, 0.25), input_tokens=1, truncated=False)
    (row,) = reply_of(compose_all(tie, top_k=3))["data"]
    assert row["labels"] == ["maybe", "no", "yes"]


@pytest.mark.parametrize("labels", [1, 2, FEW_LABELS, FEW_LABELS + 1, 1000])
@pytest.mark.parametrize("count", [1, 5, 10_000])
def test_labels_of_any_number_are_ordered_alike(labels: int, count: int) -> None:
    # Few values, so that many are equal.
    probs = tuple(random.Random(labels).choices([0.0, 0.125, 0.25, 1e-30], k=labels))
    order = sorted(range(labels), key=lambda position: (-probs[position], position))
    assert most_probable(probs, count) == order[:count]


def test_mixed_tasks_are_answered_by_the_backbone() -> None:
    assert reply_of(compose_all(ANSWER, ANSWER, model=None))["model"] == "the-backbone"


def test_the_only_row_s_error_is_the_reply_s() -> None:
    with pytest.raises(Unprocessable) as caught:
        compose_all(Unprocessable("Empty.", code="empty_text", field="premise"))
    assert (caught.value.code, caught.value.field) == ("empty_text", "text.0")


def test_one_bad_row_of_several_has_its_error_in_place() -> None:
    classified = compose_all(ANSWER, Unprocessable("Empty.", code="empty_text"), ANSWER)
    good, bad, _ = reply_of(classified)["data"]
    assert good["error"] is None
    assert bad["error"] == {"code": "empty_text", "message": "Empty.", "field": "text.1"}
    assert bad["index"] == 1
    assert (bad["task"], bad["version"], bad["digest"]) == ("trec", 3, "d" * 64)
    assert bad["label"] is bad["score"] is bad["probs"] is bad["labels"] is None
    assert classified.row_errors == ["empty_text"]
    assert reply_of(classified)["usage"]["prompt_tokens"] == 14


def test_a_row_without_a_task_names_what_was_asked_for() -> None:
    missing = NotFound("No such task.", code="task_not_found", field="task")
    first, _ = reply_of(compose_all(missing, missing, capsule=missing, model=None))["data"]
    assert first["task"] == "trec@3"
    assert first["version"] is first["num_classes"] is None
    assert first["error"]["field"] == "task"


def test_a_fault_of_a_named_input_is_told_by_its_path() -> None:
    missing = Unprocessable("Missing.", code="missing_input", field="hypothesis")
    foreign = Unprocessable("Unknown.", code="unexpected_input", field="colour")
    first, second = reply_of(compose_all(missing, foreign, text={"premise": "x"}))["data"]
    assert first["error"]["field"] == "text.0.hypothesis"
    assert second["error"]["field"] == "text.1"


def test_a_failure_of_the_server_names_no_field() -> None:
    error = InternalError("Broken.", code="inference_failed")
    first, _ = reply_of(compose_all(error, error))["data"]
    assert first["error"] == {"code": "inference_failed", "message": "Broken.", "field": None}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_scores_that_are_no_numbers_never_leave(value: float) -> None:
    broken = RowAnswer(probs=(0.5, value, 0.5), input_tokens=1, truncated=False)
    with pytest.raises(InternalError) as caught:
        compose_all(broken)
    assert caught.value.code == "non_finite_scores"
    classified = compose_all(broken, ANSWER)
    assert reply_of(classified)["data"][0]["error"]["code"] == "non_finite_scores"
    assert reply_of(classified)["data"][0]["probs"] is None
