import io
import sys
from dataclasses import replace

import pytest

from benchmarks.context import SERVE
from benchmarks.errors import BenchmarkError
from benchmarks.http_overhead import BARE, HTTP, IN_PROCESS, QUICK, measure, set_up
from benchmarks.load.process import LoadProcess
from benchmarks.load.records import Load

FAKE = (sys.executable, "-m", "tests.support.fake_server")


def check(findings):
    case = f"{QUICK.concurrency} at a time"
    units = ("requests/s", "processor ms/request")
    assert {(one.case, one.side, one.unit) for one in findings.series} == {
        *((case, side, unit) for side in (HTTP, IN_PROCESS) for unit in units),
        *(("one at a time", side, "ms") for side in (HTTP, IN_PROCESS, BARE)),
    }
    for one in findings.series:
        single = one.case == "one at a time"
        expected = QUICK.single_requests * QUICK.single_rounds if single else QUICK.rounds
        assert len(one.samples) == expected
        assert min(one.samples) >= 0
    held = [one.name for one in findings.figures if one.goal is not None]
    assert held == [
        f"{case}: requests a second, HTTP / engine",
        "one at a time: p50 over HTTP above the bare executor call",
    ]


def test_server_and_engine_are_measured_side_by_side(context):
    check(measure(replace(context, serve=FAKE)))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_real_server_and_engine_are_measured_side_by_side(context):
    assert context.serve == SERVE
    check(measure(context))


def test_answer_of_another_task_is_no_result(context):
    sample = '{"data": [{"task": "other"}]}'
    load = Load(seconds=1.0, latencies_ms=(1.0,), cpu_seconds=0.0, sample=sample)
    confused = LoadProcess(Load, io.StringIO(), io.StringIO(load.model_dump_json()))
    with set_up(replace(context, serve=FAKE), QUICK, ["text"]) as bench:
        spoilt = replace(bench, load=confused)
        with pytest.raises(BenchmarkError, match="asked for task-00000"):
            spoilt.post(bench.rows, 1)
