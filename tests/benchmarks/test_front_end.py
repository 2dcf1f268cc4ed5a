import io
import json
import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient

from benchmarks import front_end
from benchmarks.errors import BenchmarkError
from benchmarks.front.ours import NullEngine, NullExecutor
from benchmarks.front.plain import SIDES as PLAIN_SIDES
from benchmarks.front_end import BARE, EDGE, OURS, PLAIN, QUICK, SIDES, Bench, Case, bodies_of
from benchmarks.load.process import LoadProcess
from benchmarks.load.records import Load
from capsules.core import TokenBatch
from capsules.injection import Prompts
from capsules.template import Template
from service.api.classify.schemas import ClassifyReply
from service.engine.records import RowAnswer, RowRequest, Served

FAKE = (sys.executable, "-m", "tests.support.fake_server")
CASE = Case("two texts", 2, 3)


def check(findings):
    assert {(one.case, one.side, one.unit) for one in findings.series} == {
        (case.name, side, unit)
        for case in QUICK.cases
        for side in SIDES
        for unit in ("requests/s", "processor µs/request")
    }
    assert all(len(one.samples) == QUICK.rounds for one in findings.series)
    held = [one.name for one in findings.figures if one.goal is not None]
    assert held == [f"one text: requests a second, {OURS} / {PLAIN}"]


@pytest.mark.skipif(os.cpu_count() == 1, reason="needs a core for either end")
def test_all_sides_are_measured(context, monkeypatch):
    monkeypatch.setattr(front_end, "COMMAND", FAKE)
    check(front_end.measure(context))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(os.cpu_count() == 1, reason="needs a core for either end")
def test_real_servers_are_measured(context):
    check(front_end.measure(context))


def test_requests_take_the_tasks_in_turn():
    bodies = [json.loads(body) for body in bodies_of(CASE, list("abcdef"), 2)]
    assert [body["task"] for body in bodies] == ["task-00000", "task-00001", "task-00000"]
    assert [body["text"] for body in bodies] == [["a", "b"], ["c", "d"], ["e", "f"]]
    assert json.loads(bodies_of(Case("one", 1, 1), ["a"], 1)[0])["text"] == "a"


@pytest.mark.parametrize("rows", [[], [{"task": "other"}] * 2, [{"task": "task-00000"}]])
def test_a_reply_to_something_else_is_no_result(rows, monkeypatch):
    sample = json.dumps({"data": rows})
    load = Load(seconds=1.0, latencies_ms=(1.0,), cpu_seconds=0.0, sample=sample)
    confused = LoadProcess(Load, io.StringIO(), io.StringIO(load.model_dump_json()))
    monkeypatch.setattr(front_end, "cpu_seconds", lambda process: 0.0)

    server: Any = SimpleNamespace(port=1, process=None)
    bench = Bench(backbone="b", servers={}, load=confused)
    with pytest.raises(BenchmarkError, match="The reply to"):
        bench.round(server, CASE, bodies_of(CASE, list("abcdef"), 2), 1, 0)


def test_one_core_is_not_enough(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3}, raising=False)
    with pytest.raises(BenchmarkError, match="one core only"):
        front_end.two_cores()


@pytest.mark.parametrize("side", PLAIN_SIDES)
@pytest.mark.parametrize("text", ["a", ["a", "b"]])
def test_plain_endpoints_reply_in_our_shape(side, text):
    with TestClient(PLAIN_SIDES[side]()) as client:
        assert client.get("/readyz").status_code == 200
        response = client.post("/v1/classify", json={"task": "t", "text": text})
    reply = ClassifyReply.model_validate_json(response.content)
    assert len(reply.data) == len(text)
    assert reply.data[0].task == reply.model == "t"


def test_sides_are_what_the_modules_start():
    assert {name for module, name in SIDES.values() if module == "plain"} == set(PLAIN_SIDES)
    assert {SIDES[OURS][0], SIDES[EDGE][0], SIDES[BARE][0]} == {"ours", "plain"}


async def test_null_engine_answers_every_row():
    capsule = Served("t", 1, "d", ("a", "b"), Template("{text}"), 10)
    outcome = await NullEngine().classify([RowRequest(capsule, {"text": "x"})] * 3, timeout=1.0)
    assert outcome.rows == (RowAnswer((0.5, 0.5), 10, False),) * 3


def test_null_executor_gives_a_feature_a_row(tokens):
    features = NullExecutor(8).features(tokens, Prompts())
    assert features.shape == (2, 8)


@pytest.fixture
def tokens():
    ids = torch.zeros(2, 3, dtype=torch.int64)
    return TokenBatch(input_ids=ids, attention_mask=torch.ones(2, 3, dtype=torch.bool))
