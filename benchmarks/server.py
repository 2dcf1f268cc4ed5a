"""A server in a process of its own, as a user starts it."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import psutil

from benchmarks.context import Context
from benchmarks.errors import BenchmarkError
from benchmarks.machine import ROOT

HOST = "127.0.0.1"
PREFIX = "CAPSULE_"
LOG_NAME = "server.log"
GRAPHS = ROOT / "build" / "graphs"
"""Graphs are kept from one server to the next: exporting one is no part of what is measured."""

LISTEN_POLL_S = 0.02
# Each look takes the server a millisecond, which must not slow down what it is timed at.
READY_POLL_S = 0.1
START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 120.0
LOG_TAIL = 2000


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that is ready.

    Attributes:
        process: the operating system's view of it.
        port: where it listens, on :data:`HOST`.
        listening_s: from the start of the process until it listened.
        ready_s: from the start of the process until it was ready.
        ready_cpu_s: processor time that it had taken by then.
        client: for requests that are not measured.
    """

    process: psutil.Process
    port: int
    listening_s: float
    ready_s: float
    ready_cpu_s: float
    client: httpx2.Client


@contextmanager
def running_server(
    context: Context, data: Path, settings: Mapping[str, str]
) -> Iterator[RunningServer]:
    """Start a server on a free port, wait until it is ready, and stop it at the end.

    Args:
        context: which command, on which backbone and device.
        data: its data directory, which gets its log as well.
        settings: further ones by environment variable without prefix, e.g. `LOAD_ZOO`. Those of
            the caller's own environment do not count.

    Raises:
        BenchmarkError: it ended, or was not ready in time, or did not stop.
    """
    data.mkdir(parents=True, exist_ok=True)
    path = data / LOG_NAME
    started = time.perf_counter()
    with path.open("wb") as log:
        child = subprocess.Popen(
            context.serve,
            cwd=ROOT,
            env=environment(context, data, settings),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        end = started + START_TIMEOUT_S
        port = wait_for_port(child, path, end)
        listening_s = time.perf_counter() - started
        with httpx2.Client(base_url=f"http://{HOST}:{port}", timeout=START_TIMEOUT_S) as client:
            wait_until_ready(client, child, path, end)
            ready_s = time.perf_counter() - started
            process = psutil.Process(child.pid)
            yield RunningServer(process, port, listening_s, ready_s, cpu_seconds(process), client)
    finally:
        stop(child)


def environment(context: Context, data: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """The caller's environment, with the server's settings and no others."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    ours = {
        "HOST": HOST,
        "PORT": "0",
        "DATA_DIR": str(data),
        "BACKBONE": context.backbone,
        "DEVICE": context.device,
        "EXECUTOR": context.executor,
        "GRAPH_DIR": str(GRAPHS),
        **settings,
    }
    return {**kept, **{PREFIX + name: value for name, value in ours.items()}}


def wait_for_port(child: subprocess.Popen[bytes], log: Path, end: float) -> int:
    """The port that a server says it listens on.

    Raises:
        BenchmarkError: it ended, or did not say so in time.
    """
    while True:
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
            if '"listening"' in line:
                port: int = json.loads(line)["port"]
                return port
        check_alive(child, log, end)
        time.sleep(LISTEN_POLL_S)


def wait_until_ready(
    client: httpx2.Client, child: subprocess.Popen[bytes], log: Path, end: float
) -> None:
    """Wait until a server is ready.

    Raises:
        BenchmarkError: it ended, or was not ready in time.
    """
    while True:
        try:
            if client.get("/readyz").status_code == httpx2.codes.OK:
                return
        except httpx2.TransportError:
            pass  # it has ended, or is not there yet; the log tells
        check_alive(child, log, end)
        time.sleep(READY_POLL_S)


def check_alive(child: subprocess.Popen[bytes], log: Path, end: float) -> None:
    """See to it that there is something to wait for.

    Raises:
        BenchmarkError: there is not.
    """
    if child.poll() is not None:
        happened = f"ended with status {child.returncode}"
    elif time.perf_counter() > end:
        happened = f"was not ready after {START_TIMEOUT_S:.0f} s"
    else:
        return
    tail = log.read_text(encoding="utf-8", errors="replace")[-LOG_TAIL:]
    raise BenchmarkError(f"The server {happened}. The end of its log:\n{tail}")


def cpu_seconds(process: psutil.Process) -> float:
    """Processor time that a process has taken, all its threads together."""
    times = process.cpu_times()
    return times.user + times.system


def stop(child: subprocess.Popen[bytes]) -> None:
    """End a server, gracefully if it will.

    Raises:
        BenchmarkError: it had to be killed.
    """
    if child.poll() is not None:
        return
    child.send_signal(signal.SIGTERM)
    try:
        child.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
        raise BenchmarkError(
            f"The server did not stop within {STOP_TIMEOUT_S:.0f} s of being told to."
        ) from None
