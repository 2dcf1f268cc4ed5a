"""What goes wrong at each stage costs the rows it happens to, and nothing else."""

import asyncio
import math
import threading

import pytest
import torch
from structlog.testing import capture_logs

from capsules.model import pad
from service.engine.heads import Heads
from service.engine.request import Request
from service.errors import DeadlineExceeded, Unavailable
from tests.support.engines import TIMEOUT, assert_at_rest, constant, occupied, shares
from tests.support.observers import CountingObserver
from tests.support.requests import rows_for, until


def failing(fault: BaseException):
    def fail(*_: object, **__: object):
        raise fault

    return fail


async def assert_serves(engine) -> None:
    assert engine.healthy
    outcome = await engine.classify(rows_for(constant(engine, 0.3), "w1"), timeout=TIMEOUT)
    assert shares(outcome.rows) == [0.3]


async def one_batch_of_two(engine, executor):
    """A request that runs, and two that are batched together after it."""
    capsule = constant(engine, 0.2)
    running = await occupied(engine, executor, capsule)
    calls = [
        asyncio.create_task(engine.classify(rows_for(capsule, "w1"), timeout=TIMEOUT))
        for _ in range(2)
    ]
    await until(lambda: engine.queue_depth == 2)
    executor.gate.set()
    first, second, third = await asyncio.gather(running, *calls)
    return first, second, third


class SecondTime:
    """Calls through, but for the second time, when it raises."""

    def __init__(self, original, fault: BaseException) -> None:
        self.original = original
        self.fault = fault
        self.calls = 0

    def __call__(self, *arguments, **options):
        self.calls += 1
        if self.calls == 2:
            raise self.fault
        return self.original(*arguments, **options)


@pytest.mark.parametrize("stage", ["pad", "gather", "prepare", "features", "heads"])
@pytest.mark.parametrize("fault", [RuntimeError("boom"), KeyError("boom"), MemoryError()])
async def test_a_batch_that_fails_fails_its_rows(
    start_engine, executor, observer, monkeypatch, stage, fault
):
    engine = await start_engine()
    if stage == "gather":
        monkeypatch.setattr(engine.bank, "gather", SecondTime(engine.bank.gather, fault))
    elif stage == "pad":
        monkeypatch.setattr("service.engine.prepared.pad", SecondTime(pad, fault))
    elif stage == "prepare":
        executor.preparing = SecondTime(executor.preparing, fault)
    elif stage == "features":
        executor.before = SecondTime(executor.before, fault)
    else:
        second_time = SecondTime(Heads.probabilities, fault)
        monkeypatch.setattr(Heads, "probabilities", lambda heads, x: second_time(heads, x))
    with capture_logs() as logs:
        first, second, third = await one_batch_of_two(engine, executor)
    assert shares(first.rows) == [0.2]
    assert shares(second.rows) == shares(third.rows) == ["inference_failed"]
    failures = [entry for entry in logs if entry["event"] == "batch_failed"]
    assert [(entry["rows"], entry["exc_info"]) for entry in failures] == [(2, fault)]
    await assert_serves(engine)
    await until(lambda: observer.counts["batched"] == 2)
    assert observer.counts["failed"] == 2
    assert_at_rest(engine)


async def test_features_that_are_no_numbers_fail_their_row(start_engine, executor):
    def poison(features: torch.Tensor) -> torch.Tensor:
        features[-1] = math.nan
        return features

    engine = await start_engine()
    executor.before = poison
    first, second, third = await one_batch_of_two(engine, executor)
    assert shares(first.rows) == ["non_finite_scores"]
    # Two threads tokenise, so either may have been the last row of the batch.
    assert sorted(map(str, shares([*second.rows, *third.rows]))) == ["0.2", "non_finite_scores"]
    executor.before = lambda features: features
    await assert_serves(engine)


@pytest.mark.parametrize("fault", [RuntimeError("boom"), SystemExit(1)])
async def test_a_tokeniser_that_fails_fails_the_rows_it_had(start_engine, monkeypatch, fault):
    engine = await start_engine()
    capsule = constant(engine, 0.2)
    with monkeypatch.context() as patch:
        patch.setattr(engine.loaded.tokeniser, "encode", failing(fault))
        outcome = await engine.classify(rows_for(capsule, "w1", "", "w2"), timeout=TIMEOUT)
    assert shares(outcome.rows) == ["tokenising_failed", "tokenising_failed", "tokenising_failed"]
    await assert_serves(engine)
    assert_at_rest(engine)


async def test_a_client_whose_event_loop_is_gone_costs_the_others_nothing(start_engine, executor):
    engine = await start_engine()
    capsule = constant(engine, 0.2)
    executor.gate.clear()

    def ask_and_leave() -> None:
        loop = asyncio.new_event_loop()
        call = loop.create_task(engine.classify(rows_for(capsule, "w1"), timeout=TIMEOUT))
        loop.run_until_complete(until(executor.inside.is_set))
        loop.close()
        call.get_coro().close()

    leaving = threading.Thread(target=ask_and_leave)
    leaving.start()
    await asyncio.to_thread(leaving.join)
    waiting = asyncio.create_task(engine.classify(rows_for(capsule, "w1"), timeout=TIMEOUT))
    await until(lambda: engine.queue_depth == 1)
    with capture_logs() as logs:
        executor.gate.set()
        assert shares((await waiting).rows) == [0.2]
    assert "reply_dropped" in [entry["event"] for entry in logs]
    await assert_serves(engine)
    await engine.stop()
    assert_at_rest(engine)


class FailingObserver(CountingObserver):
    """Fails whatever it is told."""

    def count(self, name: str, rows: int) -> None:
        super().count(name, rows)
        raise RuntimeError("boom")


async def test_an_observer_that_fails_costs_nobody_an_answer(start_engine, executor):
    observer = FailingObserver()
    engine = await start_engine(observer=observer, queue_rows=5)
    capsule = constant(engine, 0.2)
    first, second, third = await one_batch_of_two(engine, executor)
    assert shares([*first.rows, *second.rows, *third.rows]) == [0.2] * 3
    with pytest.raises(Unavailable, match="no room"):
        await engine.classify(rows_for(capsule, *["w1"] * 6), timeout=TIMEOUT)
    with pytest.raises(DeadlineExceeded):
        await engine.classify(rows_for(capsule, "w1"), timeout=0.0)
    leaving = asyncio.create_task(engine.classify(rows_for(capsule, "w1", "w2"), timeout=TIMEOUT))
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    executor.before = SecondTime(executor.before, RuntimeError("boom"))
    first, second, third = await one_batch_of_two(engine, executor)
    assert shares([*first.rows, *second.rows, *third.rows]) == [0.2] + ["inference_failed"] * 2
    await assert_serves(engine)
    await until(lambda: observer.counts["batched"] >= 5)
    told = {"tokenised", "batched", "failed", "rejected:queue_full", "expired", "cancelled"}
    assert observer.counts.keys() >= told
    assert_at_rest(engine)


@pytest.mark.parametrize("fault", [RuntimeError("boom"), KeyError("boom")])
async def test_an_answer_that_gets_lost_fails_its_own_request(
    start_engine, executor, monkeypatch, fault
):
    engine = await start_engine()
    settle = SecondTime(Request.settle, fault)
    monkeypatch.setattr(Request, "settle", lambda *arguments: settle(*arguments))
    capsule = constant(engine, 0.2)
    running = await occupied(engine, executor, capsule)
    calls = [
        asyncio.create_task(engine.classify(rows_for(capsule, "w1"), timeout=TIMEOUT))
        for _ in range(3)
    ]
    await until(lambda: engine.queue_depth == 3)
    executor.gate.set()
    outcomes = await asyncio.gather(running, *calls, return_exceptions=True)
    assert sorted(getattr(outcome, "code", "answered") for outcome in outcomes) == [
        "answered",
        "answered",
        "answered",
        "reply_failed",
    ]
    await assert_serves(engine)
    assert_at_rest(engine)


@pytest.mark.parametrize("fault", [RuntimeError("boom"), KeyError("boom")])
async def test_a_template_that_breaks_fails_the_rows_it_had(start_engine, monkeypatch, fault):
    engine = await start_engine()
    capsule = constant(engine, 0.2)
    with monkeypatch.context() as patch:
        patch.setattr(type(capsule.template), "render", failing(fault))
        outcome = await engine.classify(rows_for(capsule, "w1", "w2"), timeout=TIMEOUT)
    assert shares(outcome.rows) == ["tokenising_failed"] * 2
    await assert_serves(engine)
    assert_at_rest(engine)


class TestDeath:
    """What is no `Exception`, or a lost device, ends the model thread, and nobody waits for it."""

    async def assert_dies(self, engine, executor) -> None:
        capsule = constant(engine, 0.2)
        running = await occupied(engine, executor, capsule)
        waiting = asyncio.create_task(engine.classify(rows_for(capsule, *"abc"), timeout=TIMEOUT))
        await until(lambda: engine.queue_depth == 3)
        with capture_logs() as logs:
            executor.gate.set()
            for call in (running, waiting):
                with pytest.raises(Unavailable) as caught:
                    await call
                assert caught.value.code == "engine_stopped"
        assert not engine.healthy
        assert "model_thread_died" in [entry["event"] for entry in logs]
        with pytest.raises(Unavailable) as caught:
            await engine.classify(rows_for(capsule, "w1"), timeout=TIMEOUT)
        assert caught.value.code == "engine_stopped"
        engine.worker.thread.join(TIMEOUT)
        assert_at_rest(engine)

    async def test_by_an_exit(self, start_engine, executor):
        engine = await start_engine()
        executor.before = failing(SystemExit(1))
        await self.assert_dies(engine, executor)

    async def test_by_the_loss_of_the_device(self, start_engine, executor, monkeypatch):
        engine = await start_engine()
        # Nothing can be read back from it, as from a device after a fault.
        monkeypatch.setattr(type(executor), "device", torch.device("meta"))
        executor.before = failing(RuntimeError("an illegal memory access was encountered"))
        await self.assert_dies(engine, executor)

    async def test_while_a_request_is_tokenised(self, start_engine, executor, monkeypatch):
        engine = await start_engine()
        capsule = constant(engine, 0.2)
        executor.before = failing(SystemExit(1))
        running = await occupied(engine, executor, capsule)
        inside, go_on = threading.Event(), threading.Event()
        encode = engine.loaded.tokeniser.encode

        def slowly(texts, max_tokens):
            inside.set()
            assert go_on.wait(TIMEOUT)
            return encode(texts, max_tokens)

        monkeypatch.setattr(engine.loaded.tokeniser, "encode", slowly)
        tokenising = asyncio.create_task(
            engine.classify(rows_for(capsule, "w1", "w2"), timeout=TIMEOUT)
        )
        await until(inside.is_set)
        executor.gate.set()
        engine.worker.thread.join(TIMEOUT)
        go_on.set()
        for call in (running, tokenising):
            with pytest.raises(Unavailable):
                await call
        assert_at_rest(engine)

    async def test_while_a_large_request_is_only_partly_queued(
        self, start_engine, executor, monkeypatch
    ):
        engine = await start_engine()
        rows = rows_for(constant(engine, 0.2), *["w1"] * 600)
        executor.before = failing(SystemExit(1))
        with pytest.raises(Unavailable):
            await engine.classify(rows, timeout=TIMEOUT)
        engine.worker.thread.join(TIMEOUT)
        assert_at_rest(engine)
