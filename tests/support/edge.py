"""The HTTP edge for tests: on a fake engine, or all of it on a tiny backbone, in process or served."""

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import httpx2
from fastapi import FastAPI
from starlette.testclient import TestClient

from capsules.artefact.file import dump
from service.desk.housekeeping import Housekeeping, keeping
from service.engine.bank import BankStats
from service.engine.records import Outcome, RowRequest
from service.errors import DeadlineExceeded
from service.metrics import Metrics
from service.registry.registry import Registry
from service.server import Server, config_for
from service.settings import Settings
from service.startup import Assemble, open_desk
from service.state import BackboneFacts, Warm
from service.store import open_store
from tests.support.capsules import random_capsule
from tests.support.claimed import INFO
from tests.support.fake_engine import FakeEngine
from tests.support.rehearsals import FakeRehearsal

PATIENCE_S = 20.0
NO_CAPSULES = BankStats(resident=0, host=0, pinned=0, bytes=0, host_bytes=0)

FACTS = BackboneFacts(
    id=INFO.id,
    family=INFO.family,
    architecture=INFO.architecture,
    hidden_size=INFO.hidden_size,
    num_layers=INFO.num_layers,
    parameters=INFO.parameters,
    vocab_size=INFO.vocab_size,
    max_tokens=INFO.max_tokens,
    fingerprint=INFO.fingerprint,
    device="cpu",
    dtype="float32",
    executor="fake",
    path=str(INFO.path),
)


class EdgeEngine(FakeEngine):
    """A fake engine that knows of time limits and health.

    Attributes:
        asked: the rows of every call.
        cancelled: calls whose caller went away.
        result: answers every call instead of the fake, where it is set.
        rehearsal: what training jobs are rehearsed with.
    """

    def __init__(self) -> None:
        super().__init__()
        self.healthy = True
        self.asked: list[Sequence[RowRequest]] = []
        self.cancelled = 0
        self.result: Outcome | None = None
        self.rehearsal = FakeRehearsal()

    async def classify(
        self,
        rows: Sequence[RowRequest],
        *,
        timeout: float,  # noqa: ASYNC109 - the engine's interface
        caller: str = "",
    ) -> Outcome:
        self.asked.append(rows)
        try:
            async with asyncio.timeout(timeout):
                outcome = await super().classify(rows, timeout=timeout, caller=caller)
        except TimeoutError:
            raise DeadlineExceeded("Too slow.", code="deadline_exceeded") from None
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return outcome if self.result is None else self.result


def an_artefact(task: str, **capsule: Any) -> bytes:
    """A capsule file for the fake engine; see `random_capsule`."""
    return dump(random_capsule(INFO, task=task, **capsule))


def settings_for(folder: Path, **changes: Any) -> Settings:
    """Settings that keep to a folder, load nothing that ships with the server and export nothing."""
    return Settings(**{"data_dir": folder, "load_zoo": False, "executor": "torch", **changes})


def with_engine(engine: EdgeEngine, artefacts: Sequence[bytes] = ()) -> Assemble:
    """Assembles a real registry and store with a fake engine, and uploads artefacts."""

    @asynccontextmanager
    async def build(settings: Settings, metrics: Metrics) -> AsyncIterator[Warm]:
        store = await asyncio.to_thread(open_store, settings.data_dir)
        try:
            with closing(Registry(store, engine, INFO, observer=metrics)) as registry:
                await registry.load()
                for artefact in artefacts:
                    await registry.upload(artefact)
                metrics.watch(lambda: engine.waiting, lambda: NO_CAPSULES, registry.knows)
                with closing(open_desk(store, engine.rehearsal, registry, settings)) as desk:
                    async with keeping(Housekeeping(desk, metrics)):
                        yield Warm(engine=engine, registry=registry, backbone=FACTS, jobs=desk)
        finally:
            await asyncio.to_thread(store.close)

    return build


@contextmanager
def serving(app: FastAPI, *, ready: bool = True) -> Iterator[str]:
    """Serve an app over real HTTP on a free port of this machine, and give its URL.

    Args:
        app: is served in a thread.
        ready: wait until it is warm.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    server = Server(config_for(app, app.state.live.settings), app.state.live)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        wait_until(lambda: server.started and (app.state.live.phase == "ready" or not ready))
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "the server did not stop"


def wait_until(condition: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
    """Block until a condition holds.

    Raises:
        AssertionError: it does not, in time.
    """
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


@contextmanager
def client_of(app: FastAPI) -> Iterator[TestClient]:
    """A client of an app in this process, once the app is ready."""
    with TestClient(app) as client:
        wait_until(lambda: app.state.live.phase == "ready")
        yield client


def a_problem(response: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    """The problem document in a response, which must be a whole one."""
    assert response.headers["content-type"] == "application/problem+json", response.text
    problem: dict[str, Any] = response.json()
    assert (response.status_code, problem["code"]) == (status, code), problem
    assert problem["type"] == f"urn:capsule:problem:{code}"
    assert problem["status"] == status
    assert problem["request_id"] == response.headers["x-request-id"]
    assert problem["title"]
    assert problem["detail"]
    assert problem["errors"]
    assert problem["error"] == {
        "message": problem["detail"],
        "type": "invalid_request_error" if status < 500 else "server_error",
        "param": problem["errors"][0]["field"],
        "code": code,
    }
    return problem
