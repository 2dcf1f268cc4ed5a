from dataclasses import replace

import pytest

from benchmarks.errors import BenchmarkError
from benchmarks.registry import BENCHMARKS, Benchmark, benchmark
from benchmarks.result import Findings


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_asks_a_question(name):
    found = benchmark(name)
    assert found.name == name
    assert found.question.endswith("?")


def test_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(BenchmarkError, match="no benchmark 'speed'; choose of engine_overhead"):
        benchmark("speed")


def test_result_says_what_where_and_when(context):
    findings = Findings(options={}, figures=(), series=())
    asked = []

    def measure(given):
        asked.append(given)
        return findings

    one = Benchmark("name", "Why?", measure)
    result = one.run(replace(context, quick=False))
    assert (result.benchmark, result.question, result.findings) == ("name", "Why?", findings)
    assert result.machine.cpu
    assert asked == [replace(context, quick=False)]
