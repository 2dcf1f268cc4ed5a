import json
import math
from datetime import UTC

import pytest
from pydantic import ValidationError

from benchmarks.errors import BenchmarkError
from benchmarks.result import (
    Goal,
    at_least,
    at_most,
    figure,
    now,
    read_result,
    read_results,
    rounded,
    series,
)
from benchmarks.sampling import Estimate


def test_file_gives_the_result_back(result, tmp_path):
    path = result.write(tmp_path / "results")
    assert path.name == "engine_overhead.json"
    assert read_result(path) == result


def test_file_holds_raw_samples_and_the_machine(result, tmp_path):
    written = json.loads(result.write(tmp_path).read_text())
    assert written["findings"]["series"][0]["samples"] == [1.0, 2.0, 3.0]
    assert written["machine"]["cpu"] == "Abacus 5"
    assert written["recorded_at"] == "2026-03-01T12:00:00Z"


def test_newer_result_takes_the_place_of_the_older(result, tmp_path):
    result.write(tmp_path)
    newer = result.model_copy(update={"question": "Still?"})
    assert read_result(newer.write(tmp_path)).question == "Still?"


@pytest.mark.parametrize("text", ["", "[]", '{"benchmark": "engine_overhead"}'])
def test_file_that_is_no_result_is_refused_by_name(tmp_path, text):
    path = tmp_path / "engine_overhead.json"
    path.write_text(text)
    with pytest.raises(BenchmarkError, match=r"engine_overhead\.json is not a result"):
        read_result(path)


def test_results_that_are_not_there_are_left_out(result, tmp_path):
    result.write(tmp_path)
    assert read_results(tmp_path, ["http_overhead", "engine_overhead"]) == {
        "engine_overhead": result
    }


def test_series_has_its_quartiles():
    one = series("case", "side", "ms", [5.0, 1.0, 2.0, 4.0, 3.0])
    assert (one.q1, one.median, one.q3) == (2.0, 3.0, 4.0)
    assert one.samples == (5.0, 1.0, 2.0, 4.0, 3.0)


@pytest.mark.parametrize(
    ("goal", "value", "met"),
    [
        (at_least(0.95), 0.95, True),
        (at_least(0.95), 0.949, False),
        (at_most(5), 5, True),
        (at_most(5), 5.1, False),
        (None, 1.0, None),
    ],
)
def test_goal_is_met_up_to_its_bound(goal, value, met):
    assert figure("name", "ratio", Estimate(value, value, value), goal).met is met


def test_goal_is_one_of_two_kinds():
    with pytest.raises(ValidationError):
        Goal.model_validate({"kind": "about", "bound": 1})


@pytest.mark.parametrize("value", [0.0, 1.0, 1 / 3, -123456.789, 1e-9])
def test_rounding_keeps_six_digits(value):
    assert math.isclose(rounded(value), value, rel_tol=1e-5)
    assert len(f"{rounded(value):.15g}".lstrip("-0.").replace(".", "").split("e")[0]) <= 6


def test_time_is_universal():
    assert now().tzinfo is UTC
