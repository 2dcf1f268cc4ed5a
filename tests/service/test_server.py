import asyncio
import gc
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn
from structlog.testing import capture_logs

from service import server
from service.metrics import Metrics
from service.server import (
    FAILURE,
    SUCCESS,
    Server,
    deafen,
    explain,
    listen,
    serve,
    settle,
    within_reach,
)
from service.settings import Settings
from service.state import Live, Warm
from tests.support.backbones import save_tiny_bert
from tests.support.commands import environment
from tests.support.edge import PATIENCE_S, settings_for, wait_until
from tests.support.logs import restored_logging

HERE = "127.0.0.1"
START_S = 250.0
"""On a busy machine; a few seconds on an idle one, most of them for imports."""


@pytest.fixture
def restored() -> Iterator[None]:
    with restored_logging():
        yield


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_free_port_is_found_and_listened_on() -> None:
    (listener,) = listen(HERE, 0)
    with listener:
        assert listener.getsockname()[1] > 0
        with socket.create_connection(listener.getsockname()):
            pass


def test_all_addresses_of_a_name_share_one_port() -> None:
    sockets = listen("localhost", 0)
    try:
        assert len({listener.getsockname()[1] for listener in sockets}) == 1
    finally:
        for listener in sockets:
            listener.close()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such filter")
def test_a_deaf_listener_accepts_those_who_came_before() -> None:
    with socket.create_server((HERE, 0)) as listener:
        place = listener.getsockname()
        with socket.create_connection(place, PATIENCE_S) as early:
            early.sendall(b"before")
            deafen(listener)
            with pytest.raises(TimeoutError):
                socket.create_connection(place, timeout=0.2)
            listener.settimeout(PATIENCE_S)
            accepted, _ = listener.accept()
            with accepted:
                assert accepted.recv(100) == b"before"
                early.sendall(b"after")
                assert accepted.recv(100) == b"after"
        listener.settimeout(0.1)
        with pytest.raises(TimeoutError):
            listener.accept()


@pytest.mark.parametrize("connections", [512, 10_000])
def test_no_more_connections_than_there_may_be_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connections: int
) -> None:
    monkeypatch.setattr(server, "affordable", lambda wanted: min(wanted, connections))
    with capture_logs() as logs:
        assert within_reach(settings_for(tmp_path)).max_connections == connections
    if connections < 10_000:
        (line,) = logs
        assert (line["event"], line["connections"]) == ("connections_limited", 512)
        assert "CAPSULE_MAX_CONNECTIONS" in line["remedy"]
    else:
        assert logs == []


def test_what_start_up_left_is_never_collected() -> None:
    gc.unfreeze()
    assert gc.get_freeze_count() == 0
    settle()
    assert gc.get_freeze_count() > 0


@pytest.mark.timeout(120)
def test_a_server_that_is_stopped_before_it_is_warm_leaves_without_collecting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], restored: None
) -> None:
    @asynccontextmanager
    async def build(settings: Settings, metrics: Metrics) -> AsyncIterator[Warm]:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()
        yield  # type: ignore[misc]

    gc.unfreeze()
    try:
        assert serve(settings_for(tmp_path, port=0), build) == SUCCESS
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


def test_a_port_in_use_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], restored: None
) -> None:
    with socket.create_server((HERE, 0)) as taken:
        port = taken.getsockname()[1]
        assert serve(settings_for(tmp_path, port=port)) == FAILURE
    (line,) = lines_of(capsys.readouterr().out)
    assert (line["event"], line["level"], line["code"]) == (
        "start_failed",
        "critical",
        "cannot_listen",
    )
    assert f"{HERE}:{port} is in use" in line["reason"]
    assert "CAPSULE_PORT" in line["reason"]


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (PermissionError(13, "Permission denied"), "CAPSULE_PORT"),
        (socket.gaierror(-2, "Name or service not known"), "CAPSULE_HOST"),
    ],
)
def test_other_reasons_name_a_remedy(tmp_path: Path, error: OSError, remedy: str) -> None:
    reason = explain(error, settings_for(tmp_path, host="somewhere"))
    assert "somewhere:8000" in reason
    assert remedy in reason


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(OSError, match="assign"):
        listen("192.0.2.1", 0)


def test_a_server_that_cannot_start_ends_as_a_failure(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    restored: None,
) -> None:
    monkeypatch.setenv("CAPSULE_PROT", "1")
    settings = settings_for(tmp_path, port=0, backbone=str(tmp_path / "nowhere"))
    assert serve(settings) == FAILURE
    lines = lines_of(capsys.readouterr().out)
    (failed,) = [line for line in lines if line["event"] == "start_failed"]
    assert failed["code"] == "backbone_not_found"
    (unknown,) = [line for line in lines if line["event"] == "unknown_setting"]
    assert unknown["variable"] == "CAPSULE_PROT"


def test_signals_drain_at_once_and_a_second_interrupt_leaves(tmp_path: Path) -> None:
    live = Live(settings_for(tmp_path), Metrics(tasks=1))
    server = Server(uvicorn.Config(lambda: None, log_config=None), live)
    forced = []
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
        server.handle_exit(number, None)
        forced.append(server.force_exit)
    assert forced == [False, False, True]
    assert (live.phase, server.should_exit, server.failed) == ("draining", True, False)


SERVE = """
import gc, json, sys
from service.server import serve
from service.settings import load_settings
code = serve(load_settings())
print(json.dumps({"event": "left", "frozen": gc.get_freeze_count()}))
sys.exit(code)
"""


@pytest.mark.timeout(300)
def test_the_life_of_a_server(tmp_path: Path) -> None:
    with socket.create_server((HERE, 0)) as free:
        port = free.getsockname()[1]
    variables = {
        **environment(),
        "CAPSULE_PORT": str(port),
        "CAPSULE_BACKBONE": str(save_tiny_bert(tmp_path / "backbone")),
        "CAPSULE_DATA_DIR": str(tmp_path / "data"),
        "CAPSULE_LOAD_ZOO": "false",
    }
    log = tmp_path / "log"
    with (
        log.open("wb") as out,
        subprocess.Popen(
            [sys.executable, "-c", SERVE], env=variables, stdout=out, stderr=subprocess.STDOUT
        ) as process,
        httpx2.Client(base_url=f"http://{HERE}:{port}") as client,
    ):

        def ready() -> bool:
            assert process.poll() is None, log.read_text()
            try:
                return client.get("/readyz").status_code == 200
            except httpx2.ConnectError:
                return False

        try:
            wait_until(ready, seconds=START_S)
            response = client.post("/v1/classify", json={"task": "none", "text": "swordfish"})
            assert response.status_code == 404
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()
    lines = lines_of(log.read_text())
    events = [line["event"] for line in lines]
    assert events[0] == "listening"
    assert "ready" in events
    assert events[-1] == "left"
    assert lines[-1]["frozen"] > 0
    (request,) = [line for line in lines if line.get("route") == "/v1/classify"]
    assert request["status"] == 404
    assert request["request_id"] == response.headers["x-request-id"]
    assert "swordfish" not in log.read_text()
