"""A server's processes: started, held while others are measured, and ended."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx2
import psutil

from benchmarks.errors import BenchmarkError
from benchmarks.machine import ROOT
from benchmarks.rival_servers.catalogue import Rival
from benchmarks.rival_servers.classifier import VARIABLE
from benchmarks.rival_servers.model_folder import GRAPH
from benchmarks.server import HOST, START_TIMEOUT_S, check_alive

POLL_S = 0.5
STOP_TIMEOUT_S = 15.0


def hold(process: psutil.Process) -> None:
    """Stop a process and all below it from running, until :func:`let_go`.

    Servers that wait for work still wake up now and then; a held one takes nothing at all.
    """
    for one in (process, *process.children(recursive=True)):
        one.suspend()


def let_go(process: psutil.Process) -> None:
    """Have them run on, those below first, so that nobody waits for one that is still held."""
    for one in (*process.children(recursive=True), process):
        one.resume()


def end(process: psutil.Process) -> None:
    """End a process and all below it: told to first, and killed where that takes too long."""
    if not process.is_running():
        return
    family = (process, *process.children(recursive=True))
    let_go(process)
    process.terminate()
    _, left = psutil.wait_procs(family, STOP_TIMEOUT_S)
    for one in left:
        one.kill()
    psutil.wait_procs(left, STOP_TIMEOUT_S)


@contextmanager
def running_rival(rival: Rival, model: Path, folder: Path) -> Iterator[tuple[psutil.Process, int]]:
    """Start a server, wait until it answers, and end it at the end.

    Args:
        rival: which one; its environment is installed.
        model: the folder of its model, which gets the ONNX graph where that is needed.
        folder: for its log and its caches.

    Yields:
        Its first process, and the port where it listens.

    Raises:
        BenchmarkError: it ended, or did not answer in time.
    """
    folder.mkdir(parents=True, exist_ok=True)
    environment = offline(model, folder)
    if rival.onnx:
        export(rival, model, environment)
    port, path = free_port(), folder / "server.log"
    with path.open("wb") as log:
        child = subprocess.Popen(
            (str(rival.executable(rival.program)), *rival.arguments(port)),
            cwd=model if rival.in_model else ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    process = psutil.Process(child.pid)
    try:
        wait_for_answer(rival, port, child, path)
        yield process, port
    finally:
        end(process)
        child.wait(STOP_TIMEOUT_S)


def offline(model: Path, folder: Path) -> dict[str, str]:
    """The caller's environment for a server that is to ask nobody and leave nothing behind."""
    ours: Mapping[str, str] = {
        VARIABLE: str(model),
        "HF_HOME": str(folder / "hub"),
        "HF_HUB_OFFLINE": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "compiled"),
        "DO_NOT_TRACK": "1",
    }
    return {**os.environ, **ours}


def export(rival: Rival, model: Path, environment: Mapping[str, str]) -> None:
    """Write the model's ONNX graph, unless it is there.

    Raises:
        BenchmarkError: it could not be written.
    """
    if (model / GRAPH).exists():
        return
    done = subprocess.run(
        (
            *(str(rival.executable("python")), "-m", "benchmarks.rival_servers.export_onnx"),
            str(model),
        ),
        cwd=ROOT,
        env=dict(environment),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise BenchmarkError(
            f"The ONNX graph for {rival.name} could not be written. The end of what was said:\n"
            f"{done.stderr[-2000:]}"
        )


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.create_server((HOST, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def wait_for_answer(rival: Rival, port: int, child: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a server answers a text.

    Raises:
        BenchmarkError: it ended, or did not in time.
    """
    latest = time.perf_counter() + START_TIMEOUT_S
    headers = {"Content-Type": "application/json"}
    with httpx2.Client(base_url=f"http://{HOST}:{port}", timeout=START_TIMEOUT_S) as client:
        while True:
            try:
                reply = client.post(rival.path, content=rival.body("ready?"), headers=headers)
                if reply.status_code == httpx2.codes.OK:
                    return
            except httpx2.TransportError:
                pass  # it has ended, or is not there yet; the log tells
            check_alive(child, log, latest)
            time.sleep(POLL_S)
