import os
import resource
import subprocess
import sys

import pytest

from service.worker import resources
from service.worker.resources import QUIET_THREADS, default_threads, limit_memory, step_back
from tests.support.commands import ROOT

MIB = 1024 * 1024


def in_a_process(code: str, **environment: str) -> str:
    """What Python code writes."""
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_a_worker_steps_back_and_is_killed_first() -> None:
    told = in_a_process(
        "import os; from service.worker.resources import *; before = os.nice(0); step_back(3);"
        "print(os.nice(0) - before, OOM_SCORE.read_text().strip() if OOM_SCORE.exists() else 500)"
    )
    assert told.split() == ["3", "500"]


def test_where_memory_has_no_score_it_still_steps_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    monkeypatch.setattr(resources, "OOM_SCORE", tmp_path / "none" / "at all")
    asked: list[int] = []
    monkeypatch.setattr(os, "nice", asked.append)
    step_back(7)
    assert asked == [7]


def test_allocations_fail_beyond_the_limit() -> None:
    told = in_a_process(
        "from service.worker.resources import limit_memory\n"
        f"limit_memory({300 * MIB})\n"
        f"small = bytearray({20 * MIB})\n"
        "try:\n"
        f"    bytearray({400 * MIB})\n"
        "except MemoryError:\n"
        "    print('refused')\n"
    )
    assert told.split() == ["refused"]


@pytest.mark.skipif(sys.platform != "linux", reason="of glibc")
def test_what_is_free_is_given_back() -> None:
    told = in_a_process(
        "import pathlib, re\n"
        "from service.worker.resources import give_memory_back\n"
        "def resident():\n"
        "    status = pathlib.Path('/proc/self/status').read_text()\n"
        "    return int(re.search(r'VmRSS:\\s+(\\d+)', status)[1])\n"
        "class Knot: pass\n"
        "def work():\n"
        "    knot = Knot()\n"
        "    knot.itself = knot\n"
        "    knot.rows = [bytes(1000) for _ in range(50_000)]\n"
        "work()\n"
        "before = resident()\n"
        "give_memory_back()\n"
        "print(before - resident() > 30_000)\n"
    )
    assert told.strip() == "True"


@pytest.mark.parametrize(
    ("most", "ceiling", "expected"),
    [
        (100, resource.RLIM_INFINITY, (100, resource.RLIM_INFINITY)),
        (100, 50, (50, 50)),
        (100, 500, (100, 500)),
        (None, 500, None),
    ],
)
def test_a_limit_stays_below_the_ceiling(
    monkeypatch: pytest.MonkeyPatch, most: int | None, ceiling: int, expected: object
) -> None:
    asked: list[tuple[int, tuple[int, int]]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (ceiling, ceiling))
    monkeypatch.setattr(resource, "setrlimit", lambda kind, pair: asked.append((kind, pair)))
    limit_memory(most)
    assert asked == ([] if expected is None else [(resource.RLIMIT_DATA, expected)])


def test_who_set_it_otherwise_meant_it() -> None:
    told = in_a_process(
        "import os; from service.worker.resources import *; quieten_threads();"
        "print([os.environ[name] for name in QUIET_THREADS])",
        **dict.fromkeys(QUIET_THREADS, "ACTIVE"),
    )
    assert told.strip() == "['ACTIVE']"


@pytest.mark.parametrize(("cores", "threads"), [(1, 1), (2, 1), (3, 1), (4, 2), (64, 32)])
def test_half_of_the_cores(monkeypatch: pytest.MonkeyPatch, cores: int, threads: int) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 99)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)))
    assert default_threads() == threads
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert default_threads() == threads
