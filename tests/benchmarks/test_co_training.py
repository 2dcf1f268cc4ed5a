import os
from pathlib import Path

import httpx2
import numpy as np
import psutil
import pytest

from benchmarks.co_training import (
    QUICK,
    QUIET,
    TRAINING,
    answer,
    latency_figures,
    measure,
    memory_of,
    percentile,
)
from benchmarks.errors import BenchmarkError
from benchmarks.load.records import Load


def load(*latencies: float) -> Load:
    return Load(seconds=sum(latencies), latencies_ms=latencies, cpu_seconds=0.0, sample="{}")


def test_a_percentile_is_taken_over_the_requests_of_all_rounds():
    values = np.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 9.0]])
    assert percentile(values, 50).value == 3.5
    assert percentile(values, 100).value == 9.0


def test_what_training_costs_is_a_ratio_of_both_sides():
    loads = {TRAINING: [load(2.0, 4.0)], QUIET: [load(1.0, 2.0)]}
    figures = {one.name: one.value for one in latency_figures("1 at a time", loads)}
    assert figures[f"1 at a time: p99, {TRAINING} / {QUIET}"] == 2.0
    assert figures[f"1 at a time: requests a second, {TRAINING} / {QUIET}"] == 0.5
    assert figures[f"1 at a time: p50, {TRAINING}"] == 3.0


def test_weights_are_counted_where_they_are_mapped(tmp_path: Path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(os.urandom(1 << 20))
    process = psutil.Process()
    assert memory_of(process, tmp_path).weights == 0
    mapped = np.memmap(path, mode="r")
    assert int(mapped.max()) == 255  # touches every page
    memory = memory_of(process, tmp_path)
    assert memory.weights == 1 << 20
    assert memory.rss > memory.weights


def test_a_refusal_is_told():
    request = httpx2.Request("GET", "http://127.0.0.1/v1/admin/training/jobs/x")
    with pytest.raises(BenchmarkError, match="got 404"):
        answer(httpx2.Response(404, request=request))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_real_server_is_measured_while_it_trains(context):
    findings = measure(context)
    samples = {(one.case, one.side): len(one.samples) for one in findings.series}
    assert samples == {
        (f"{callers} at a time", side): QUICK.rounds * count
        for callers, count in QUICK.requests.items()
        for side in (TRAINING, QUIET)
    }
    memory = {one.name: one.value for one in findings.figures if one.unit == "MiB"}
    assert memory["worker: of these shared with the other process"] > 0
