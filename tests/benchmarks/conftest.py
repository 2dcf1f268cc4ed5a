"""A context of tiny sizes, and results to write up."""

from datetime import UTC, datetime

import pytest

from benchmarks.context import Context
from benchmarks.machine import Machine
from benchmarks.result import Findings, Result, at_least, figure, series
from benchmarks.sampling import Estimate
from tests.support.backbones import save_tiny_bert


@pytest.fixture(scope="session")
def backbone(tmp_path_factory):
    """The folder of a tiny random backbone."""
    return str(save_tiny_bert(tmp_path_factory.mktemp("backbone")))


@pytest.fixture
def context(backbone):
    """Tiny sizes on that backbone, with made-up texts."""
    return Context(
        quick=True,
        data=None,
        backbone=backbone,
        device="cpu",
        tell=lambda _: None,
        executor="torch",  # exporting a graph takes longer than all that is measured
    )


@pytest.fixture
def machine():
    """A machine at rest."""
    return Machine(
        cpu="Abacus 5",
        cpu_capability="AVX2",
        physical_cores=None,
        logical_cores=4,
        usable_cores=2,
        memory_gib=7.5,
        gpu=None,
        system="Linux",
        python="3.11.7",
        packages={"torch": "2.13.0"},
        torch_threads=2,
        thread_variables={},
        load_average=0.1,
        commit="c0ffee" * 6,
        changed=False,
    )


@pytest.fixture
def result(machine):
    """Two sides, one case, one figure that meets its goal and one that has none."""
    return Result(
        benchmark="engine_overhead",
        question="Is it slow?",
        recorded_at=datetime(2026, 3, 1, 12, tzinfo=UTC),
        machine=machine,
        findings=Findings(
            options={"rounds": 3, "labels": [2, 3]},
            figures=(
                figure("ours / theirs", "ratio", Estimate(0.961, 0.94, 0.98), at_least(0.95)),
                figure("ours above theirs", "ms", Estimate(1234.5, -1.5, 2000.0)),
            ),
            series=(
                series("a | b", "ours", "ms", [1.0, 2.0, 3.0]),
                series("a | b", "theirs", "ms", [2.0, 3.0, 4.0]),
                series("c", "ours", "ms", [5.0]),
                series("c", "ours", "requests/s", [500.0]),
            ),
            notes=("Mind the gap.",),
        ),
    )
