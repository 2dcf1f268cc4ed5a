import sys
from dataclasses import replace

import psutil
import pytest

from benchmarks.errors import BenchmarkError
from benchmarks.server import GRAPHS, HOST, environment, running_server

FAKE = (sys.executable, "-m", "tests.support.fake_server")


def test_server_runs_inside_and_is_gone_afterwards(context, tmp_path):
    with running_server(replace(context, serve=FAKE), tmp_path / "new", {}) as server:
        assert server.process.is_running()
        assert server.client.get("/readyz").status_code == 200
        assert str(server.client.base_url) == f"http://{HOST}:{server.port}"
        assert 0 < server.listening_s <= server.ready_s
        assert server.ready_cpu_s >= 0
    assert not psutil.pid_exists(server.process.pid)


def test_server_is_gone_after_an_error(context, tmp_path):
    server = running_server(replace(context, serve=FAKE), tmp_path, {})
    process = server.__enter__().process
    assert not server.__exit__(RuntimeError, RuntimeError("ours"), None)
    assert not psutil.pid_exists(process.pid)


def test_server_that_ends_is_told_with_its_log(context, tmp_path):
    with (
        pytest.raises(BenchmarkError, match=r"ended with status 1.*\n.*no luck today"),
        running_server(replace(context, serve=FAKE), tmp_path, {"LOG_LEVEL": "ERROR"}),
    ):
        raise AssertionError("it is not ready")


def test_settings_are_ours_alone(context, tmp_path, monkeypatch):
    monkeypatch.setenv("CAPSULE_QUEUE_ROWS", "1")
    monkeypatch.setenv("CAPSULE_BENCH_DATA", "somewhere")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    found = environment(context, tmp_path, {"LOAD_ZOO": "false"})
    ours = {name: value for name, value in found.items() if name.startswith("CAPSULE_")}
    assert ours == {
        "CAPSULE_HOST": HOST,
        "CAPSULE_PORT": "0",
        "CAPSULE_DATA_DIR": str(tmp_path),
        "CAPSULE_BACKBONE": context.backbone,
        "CAPSULE_DEVICE": "cpu",
        "CAPSULE_EXECUTOR": "torch",
        "CAPSULE_GRAPH_DIR": str(GRAPHS),
        "CAPSULE_LOAD_ZOO": "false",
    }
    assert found["OMP_NUM_THREADS"] == "1"
