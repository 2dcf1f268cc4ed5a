from typing import Any, cast

import pytest

from service.api.classify.rows import Plan, Row, plan_rows
from service.api.classify.schemas import ClassifyRequest
from service.errors import Unprocessable
from service.problems import InvalidRequest


def plan(limit: int = 100, **request: Any) -> Plan:
    return plan_rows(cast(ClassifyRequest, request), limit)


def refusal(limit: int = 100, **request: Any) -> Unprocessable:
    with pytest.raises(Unprocessable) as caught:
        plan(limit, **request)
    return caught.value


def test_one_text() -> None:
    assert plan(task="a", text="x") == Plan("a", [Row("a", "task", "x", "text")])


def test_named_inputs() -> None:
    inputs = {"premise": "x", "hypothesis": "y"}
    assert plan(task="a", text=inputs).rows == [Row("a", "task", inputs, "text")]


def test_many_texts_of_both_kinds() -> None:
    assert plan(task="a", text=["x", {"text": "y"}]).rows == [
        Row("a", "task", "x", "text.0"),
        Row("a", "task", {"text": "y"}, "text.1"),
    ]


def test_a_task_for_each_text() -> None:
    planned = plan(inputs=[{"task": "a", "text": "x"}, {"task": "b@2", "text": {"t": "y"}}])
    assert planned.model is None
    assert planned.rows == [
        Row("a", "inputs.0.task", "x", "inputs.0.text"),
        Row("b@2", "inputs.1.task", {"t": "y"}, "inputs.1.text"),
    ]


def test_a_fan_out_keeps_the_tasks_of_a_text_together() -> None:
    planned = plan(tasks=["a", "b"], text=["x", "y"])
    assert planned.model is None
    assert [(row.reference, row.text) for row in planned.rows] == [
        ("a", "x"),
        ("b", "x"),
        ("a", "y"),
        ("b", "y"),
    ]
    assert [row.source for row in planned.rows[:2]] == ["tasks.0", "tasks.1"]


def test_the_openai_shape() -> None:
    assert plan(model="a", input=["x"]) == Plan("a", [Row("a", "model", "x", "input.0")])


@pytest.mark.parametrize(
    ("request_", "field", "code"),
    [
        ({}, "task", "missing_field"),
        ({"task": "a"}, "text", "missing_field"),
        ({"text": "x"}, "task", "missing_field"),
        ({"tasks": ["a"]}, "text", "missing_field"),
        ({"model": "a"}, "input", "missing_field"),
        ({"task": "a", "input": "x"}, "input", "conflicting_fields"),
        ({"task": "a", "text": "x", "model": "a"}, "model", "conflicting_fields"),
        ({"inputs": [], "text": "x"}, "inputs", "conflicting_fields"),
        ({"task": "a", "text": []}, "text", "no_text"),
        ({"model": "a", "input": []}, "input", "no_text"),
        ({"task": "a", "text": 3}, "text", "invalid_value"),
        ({"task": "a", "text": None}, "text", "invalid_value"),
        ({"task": "a", "text": ["x", 3]}, "text.1", "invalid_value"),
        ({"task": "a", "text": [["x"]]}, "text.0", "invalid_value"),
        ({"task": "a", "text": {"t": 3}}, "text.t", "invalid_value"),
        ({"task": "a", "text": ["x", {"t": None}]}, "text.1.t", "invalid_value"),
        ({"model": "a", "input": [True]}, "input.0", "invalid_value"),
        ({"tasks": ["a"], "text": 1.5}, "text", "invalid_value"),
        ({"inputs": [{"task": "a", "text": []}]}, "inputs.0.text", "invalid_value"),
    ],
)
def test_what_cannot_be_read_is_told_by_its_field(
    request_: dict[str, Any], field: str, code: str
) -> None:
    error = refusal(**request_)
    assert isinstance(error, InvalidRequest)
    assert (error.field, error.code) == (field, code)


def test_all_faulty_texts_are_told() -> None:
    error = refusal(task="a", text=[1, "x", {"a": 2, "b": "y"}, None])
    assert isinstance(error, InvalidRequest)
    assert [fault.field for fault in error.faults] == ["text.0", "text.2.a", "text.3"]


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        ({"task": "a", "text": ["x"] * 7}, "text"),
        ({"model": "a", "input": ["x"] * 7}, "input"),
        ({"tasks": ["a", "b"], "text": ["x"] * 4}, "text"),
        ({"tasks": ["a"] * 7, "text": "x"}, "text"),
        ({"inputs": [{"task": "a", "text": "x"}] * 7}, "inputs"),
    ],
)
def test_too_many_rows_are_refused(request_: dict[str, Any], field: str) -> None:
    error = refusal(6, **request_)
    assert (error.code, error.field) == ("too_many_texts", field)
    assert "6" in error.detail


def test_just_as_many_rows_are_taken() -> None:
    assert len(plan(6, tasks=["a", "b"], text=["x"] * 3).rows) == 6
