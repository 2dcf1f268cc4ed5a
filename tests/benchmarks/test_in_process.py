import pytest
import torch

from benchmarks.errors import BenchmarkError
from benchmarks.in_process import (
    engine_config,
    in_process,
    shipped_engine,
    shipped_executor,
    spread,
    torch_threads,
)
from benchmarks.random_capsules import fill_bank, random_capsules
from capsules.backbones.load import load
from capsules.executors.onnx.runtime import OnnxRuntimeExecutor
from service.engine.replies import inference_failed
from service.engine.worker import ModelThread
from service.settings import Settings
from service.startup import engine_config as of_server


@pytest.fixture
def engine(backbone):
    loaded = load(backbone, device="cpu")
    return shipped_engine(loaded, shipped_executor(loaded, backbone, "torch"))


@pytest.fixture
def rows(engine):
    served = fill_bank(engine.bank, random_capsules(engine.loaded.info, 3))
    return spread(["a", "b", "c", "d", "e"], served)


def test_executor_is_the_chosen_one(engine):
    assert engine.executor.name == "torch"


def test_engine_is_set_up_as_a_server_sets_it_up_without_settings(engine, monkeypatch):
    expected = of_server(Settings(), engine.executor)
    monkeypatch.setenv("CAPSULE_QUEUE_ROWS", "77")
    assert engine_config(engine.executor) == engine.config == expected
    assert engine_config(OnnxRuntimeExecutor.__new__(OnnxRuntimeExecutor)).threads == 1


def test_rows_take_the_capsules_in_turn(rows):
    assert [row.capsule.task[-1] for row in rows] == ["0", "1", "2", "0", "1"]
    assert [row.inputs["text"] for row in rows] == ["a", "b", "c", "d", "e"]


def test_every_row_is_answered_and_timed(engine, rows):
    with in_process(engine) as started:
        for callers in (1, 3, 9):
            sent = started.send(rows, callers)
            assert len(sent.latencies_ms) == len(rows)
            assert 0 < max(sent.latencies_ms) <= sent.seconds * 1000
    assert not engine.healthy


def test_row_without_answer_spoils_the_measurement(engine, rows, monkeypatch):
    monkeypatch.setattr(
        ModelThread, "answers", lambda _, batch: [inference_failed() for _ in batch.rows]
    )
    with in_process(engine) as started, pytest.raises(BenchmarkError, match="got no answer"):
        started.send(rows)


def test_threads_are_put_back(engine):
    before = torch.get_num_threads()
    with torch_threads(OnnxRuntimeExecutor.__new__(OnnxRuntimeExecutor)):
        assert torch.get_num_threads() == 1
    with torch_threads(engine.executor):
        assert torch.get_num_threads() == before
    assert torch.get_num_threads() == before
