"""The whole server over real HTTP, with a model that waits, fails or answers as it is told."""

import re
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from torch import Tensor

from capsules.artefact.file import dump
from capsules.backbones.base import BackboneInfo, LoadedBackbone
from capsules.backbones.load import load
from capsules.executors.base import Executor
from service.app import create_app
from service.engine.executors import ExecutorConfig
from service.startup import assemble
from tests.support.backbones import save_tiny_bert
from tests.support.capsules import constant_capsule
from tests.support.edge import PATIENCE_S, a_problem, serving, settings_for, wait_until
from tests.support.executors import RecordingExecutor

SWAPS = 30


@pytest.fixture(scope="module")
def info(tmp_path_factory: pytest.TempPathFactory) -> BackboneInfo:
    folder = save_tiny_bert(tmp_path_factory.mktemp("backbone"))
    return load(str(folder), device="cpu", dtype="float32").info


@pytest.fixture
def executor(info: BackboneInfo) -> Iterator[RecordingExecutor]:
    executor = RecordingExecutor(info.hidden_size)
    yield executor
    executor.gate.set()


@pytest.fixture
def server(
    info: BackboneInfo, executor: RecordingExecutor, tmp_path: Path
) -> Iterator[httpx2.Client]:
    """A server with a small queue and the task `trec`."""
    with serving(an_app(info, executor, tmp_path)) as url, client_of(url) as client:
        assert upload(client, info, (0.25, 0.75)).status_code == 201
        yield client
        # Whatever happened, or the server would not stop.
        executor.gate.set()


def an_app(
    info: BackboneInfo, executor: RecordingExecutor, folder: Path, queue_rows: int = 4
) -> FastAPI:
    settings = settings_for(
        folder,
        backbone=str(info.path),
        device="cpu",
        queue_rows=queue_rows,
        max_texts=4,
        max_batch_rows=1,
    )

    async def given(loaded: LoadedBackbone, config: ExecutorConfig) -> Executor:
        return executor

    return create_app(settings, build=partial(assemble, executor_for=given))


def client_of(url: str | httpx2.URL) -> httpx2.Client:
    return httpx2.Client(base_url=url, timeout=PATIENCE_S)


def upload(client: httpx2.Client, info: BackboneInfo, probs: Sequence[float]) -> httpx2.Response:
    data = dump(constant_capsule(info, probs, task="trec"))
    return client.post("/v1/capsules", files={"file": ("trec.safetensors", data)})


def classify(client: httpx2.Client, *texts: str, **options: Any) -> httpx2.Response:
    return client.post("/v1/classify", json={"task": "trec", "text": list(texts), **options})


def metric(client: httpx2.Client, line: str) -> float:
    match = re.search(rf"^{re.escape(line)} (.+)$", client.get("/metrics").text, re.MULTILINE)
    return float(match[1]) if match else 0.0


def hold(
    executor: RecordingExecutor, ask: Callable[[], Any]
) -> tuple[ThreadPoolExecutor, Future[Any]]:
    """Ask for something that stays with the model until its gate is opened."""
    executor.gate.clear()
    executor.inside.clear()
    pool = ThreadPoolExecutor(1)
    held = pool.submit(ask)
    assert executor.inside.wait(PATIENCE_S)
    return pool, held


def test_rows_of_a_client_that_has_gone_are_dropped(
    server: httpx2.Client, executor: RecordingExecutor
) -> None:
    pool, held = hold(executor, lambda: classify(server, "first"))
    body = b'{"task":"trec","text":["second","third"]}'
    head = (
        "POST /v1/classify HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    place = (server.base_url.host, server.base_url.port or 0)
    with socket.create_connection(place) as leaver:
        leaver.sendall(head.encode() + body)
        # One of them is prepared already, and dropped before it would run.
        wait_until(lambda: metric(server, "capsule_queue_depth") == 1)
    wait_until(lambda: metric(server, "capsule_cancelled_total") == 2)
    assert metric(server, "capsule_queue_depth") == 0
    assert metric(server, 'capsule_requests_total{code="499",task="trec"}') == 1
    batches = len(executor.batches)
    executor.gate.set()
    assert held.result(PATIENCE_S).status_code == 200
    assert classify(server, "fourth").status_code == 200
    assert len(executor.batches) == batches + 1
    pool.shutdown()


def test_a_full_queue_turns_requests_away(
    server: httpx2.Client, executor: RecordingExecutor
) -> None:
    pool, held = hold(executor, lambda: classify(server, "a", "b", "c"))
    # One row is with the model, one is prepared and one waits; the queue takes four.
    response = classify(server, "c", "d", "e", "f")
    a_problem(response, 503, "queue_full")
    assert int(response.headers["retry-after"]) > 0
    assert metric(server, 'capsule_rejected_total{reason="queue_full"}') == 1
    executor.gate.set()
    assert held.result(PATIENCE_S).status_code == 200
    assert classify(server, "c", "d", "e", "f").status_code == 200
    pool.shutdown()


def test_a_client_that_sends_little_does_not_wait_for_one_that_sends_much(
    info: BackboneInfo, executor: RecordingExecutor, tmp_path: Path
) -> None:
    with (
        serving(an_app(info, executor, tmp_path, queue_rows=64)) as url,
        client_of(url) as flood,
        client_of(url) as other,
        ThreadPoolExecutor(8) as pool,
        ExitStack() as stack,
    ):
        assert upload(flood, info, (0.25, 0.75)).status_code == 201
        flood.headers["authorization"] = "Bearer flood"
        other.headers["authorization"] = "Bearer other"
        holder, held = hold(executor, lambda: classify(flood, "w1"))
        stack.callback(holder.shutdown)
        # Also where something is not as expected, or those who wait would keep the server.
        stack.callback(executor.gate.set)
        before = len(executor.batches)
        sent = [pool.submit(classify, flood, "w1", "w1", "w1", "w1") for _ in range(6)]
        # One row is prepared already.
        wait_until(lambda: metric(other, "capsule_queue_depth") == 23)
        sent.append(pool.submit(classify, other, "w1 w2 w3"))
        wait_until(lambda: metric(other, "capsule_queue_depth") == 24)
        executor.gate.set()
        assert {one.result(PATIENCE_S).status_code for one in sent} == {200}
        assert held.result(PATIENCE_S).status_code == 200
        lengths = [len(row) for (row,) in executor.batches[before:]]
        assert len(lengths) == 25
        # By arrival it would have been the last.
        assert lengths.index(3 + 2) <= 2


def test_a_request_that_takes_too_long_is_given_up(
    server: httpx2.Client, executor: RecordingExecutor
) -> None:
    pool, held = hold(executor, lambda: classify(server, "a"))
    a_problem(classify(server, "b", timeout_ms=50), 504, "deadline_exceeded")
    assert metric(server, "capsule_expired_total") == 1
    executor.gate.set()
    assert held.result(PATIENCE_S).status_code == 200
    pool.shutdown()


def test_a_batch_that_fails_is_an_error_and_the_server_goes_on(
    server: httpx2.Client, executor: RecordingExecutor
) -> None:
    def fail(features: Tensor) -> Tensor:
        raise RuntimeError("out of swordfish")

    executor.before = fail
    problem = a_problem(classify(server, "a"), 500, "inference_failed")
    assert "swordfish" not in str(problem)
    executor.before = lambda features: features
    assert classify(server, "a").status_code == 200


def test_scores_that_are_no_numbers_never_leave(
    server: httpx2.Client, executor: RecordingExecutor
) -> None:
    executor.before = lambda features: features * float("nan")
    a_problem(classify(server, "a"), 500, "non_finite_scores")


def test_requests_in_flight_are_finished_on_shutdown(
    info: BackboneInfo, executor: RecordingExecutor, tmp_path: Path
) -> None:
    opener = threading.Timer(0.5, executor.gate.set)
    with client_of("") as client:
        with serving(an_app(info, executor, tmp_path)) as url:
            client.base_url = httpx2.URL(url)
            upload(client, info, (0.25, 0.75))
            pool, held = hold(executor, lambda: classify(client, "a"))
            opener.start()
            # Leaving this block stops the server, with the request inside.
        assert held.result(PATIENCE_S).status_code == 200
    opener.join()
    pool.shutdown()


def test_every_reply_is_of_the_version_that_it_names(
    server: httpx2.Client, info: BackboneInfo
) -> None:
    """Swaps under traffic: no request fails, and none is answered by another version's scores."""
    first = server.get("/v1/capsules/trec/versions/1").json()["digest"]
    expected: dict[str, float] = {first: 0.25}
    replies: list[tuple[str, float]] = []
    done = threading.Event()

    def ask(caller: str) -> None:
        with client_of(server.base_url) as client:
            # Callers of their own, or one would hold more of this small queue than its share.
            client.headers["x-api-key"] = caller
            while not done.is_set():
                response = classify(client, "a", "b")
                assert response.status_code == 200, response.text
                rows = response.json()["data"]
                assert len({row["digest"] for row in rows}) == 1
                replies.extend((row["digest"], row["probs"][0]) for row in rows)

    with ThreadPoolExecutor(2) as pool:
        askers = [pool.submit(ask, caller) for caller in "ab"]
        for number in range(SWAPS):
            probability = (number + 1) / (SWAPS + 2)
            stored = upload(server, info, (probability, 1 - probability)).json()
            expected[stored["digest"]] = probability
            if number % 3 == 2:
                path = f"/v1/capsules/trec/versions/{stored['version']}"
                assert server.delete(path).status_code == 200
        done.set()
        for asker in askers:
            asker.result(PATIENCE_S)
    assert len({digest for digest, _ in replies}) > 3
    for digest, probability in replies:
        assert probability == pytest.approx(expected[digest], abs=1e-4)
