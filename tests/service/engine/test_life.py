"""The engine from its start to its end."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
import torch

from service.engine.config import EngineConfig
from service.engine.engine import Engine
from service.engine.records import Outcome
from service.errors import Unavailable
from tests.support.engines import TIMEOUT, assert_at_rest, constant, occupied, shares
from tests.support.observers import CountingObserver
from tests.support.requests import rows_for, until


class TestLife:
    async def test_it_is_healthy_between_start_and_stop(self, loaded, executor):
        engine = Engine(loaded, executor, EngineConfig(), CountingObserver())
        healthy = [engine.healthy]
        await engine.start()
        healthy.append(engine.healthy)
        await engine.stop()
        healthy.append(engine.healthy)
        assert healthy == [False, True, False]

    async def test_a_backbone_is_warm_before_it_is_ready(self, loaded, executor):
        engine = Engine(loaded, executor, EngineConfig(), CountingObserver())
        executor.gate.clear()
        starting = asyncio.create_task(engine.start())
        await until(executor.inside.is_set)
        assert not engine.healthy
        executor.gate.set()
        await starting
        assert [(len(batch), len(batch[0])) for batch in executor.batches] == [
            (1, 16),
            (32, 16),
            (1, 64),
            (31, 64),
        ]
        await engine.stop()

    @pytest.mark.parametrize("fault", [RuntimeError("no kernel"), SystemExit(3)])
    async def test_a_warm_up_that_fails_is_told(self, loaded, executor, fault):
        def fail(features: torch.Tensor) -> torch.Tensor:
            raise fault

        executor.before = fail
        engine = Engine(loaded, executor, EngineConfig(), CountingObserver())
        with pytest.raises(
            RuntimeError, match="no kernel" if fault.args == ("no kernel",) else "3"
        ):
            await engine.start()
        assert not engine.healthy
        with pytest.raises(Unavailable, match="stopped"):
            await engine.classify(rows_for(constant(engine, 0.2), "w1"), timeout=TIMEOUT)
        await engine.stop()

    async def test_a_start_that_is_given_up_can_be_stopped(self, loaded, executor):
        engine = Engine(loaded, executor, EngineConfig(), CountingObserver())
        executor.gate.clear()
        starting = asyncio.create_task(engine.start())
        await until(executor.inside.is_set)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        executor.gate.set()
        await engine.stop()
        assert not engine.worker.thread.is_alive()

    async def test_an_engine_that_was_never_started_can_be_stopped(self, loaded, executor):
        await Engine(loaded, executor, EngineConfig(), CountingObserver()).stop()

    async def test_stopping_lets_requests_under_way_finish(self, start_engine, executor, observer):
        engine = await start_engine()
        capsule = constant(engine, 0.2)
        running = await occupied(engine, executor, capsule)
        calls = [
            asyncio.create_task(engine.classify(rows_for(capsule, *"abc"), timeout=TIMEOUT))
            for _ in range(2)
        ]
        await until(lambda: engine.queue_depth == 6)
        stopping = asyncio.create_task(engine.stop())
        await asyncio.sleep(0)
        with pytest.raises(Unavailable) as caught:
            await engine.classify(rows_for(capsule, "w1"), timeout=TIMEOUT)
        assert (caught.value.code, caught.value.retry_after) == ("engine_stopped", 5)
        assert observer.counts["rejected:engine_stopped"] == 1
        executor.gate.set()
        outcomes = await asyncio.gather(running, *calls)
        await stopping
        assert [shares(outcome.rows) for outcome in outcomes] == [[0.2], [0.2] * 3, [0.2] * 3]
        assert not engine.worker.thread.is_alive()
        assert_at_rest(engine)

    async def test_a_model_that_hangs_is_left_behind_after_the_grace(self, start_engine, executor):
        engine = await start_engine(grace_s=0.05)
        capsule = constant(engine, 0.2)
        running = await occupied(engine, executor, capsule)
        waiting = asyncio.create_task(engine.classify(rows_for(capsule, "w1"), timeout=TIMEOUT))
        await until(lambda: engine.queue_depth == 1)
        await engine.stop()
        for task in (running, waiting):
            with pytest.raises(Unavailable) as caught:
                await task
            assert caught.value.code == "engine_stopped"
        executor.gate.set()
        engine.worker.thread.join(TIMEOUT)
        assert_at_rest(engine)

    async def test_a_request_that_comes_between_the_steps_of_a_stop_is_refused(self, start_engine):
        engine = await start_engine()
        engine.pool.shutdown()
        with pytest.raises(Unavailable) as caught:
            await engine.classify(rows_for(constant(engine, 0.2), "w1", "w2"), timeout=TIMEOUT)
        assert caught.value.code == "engine_stopped"
        assert_at_rest(engine)

    async def test_stopping_passes_over_clients_whose_event_loop_is_gone(
        self, start_engine, executor
    ):
        engine = await start_engine(grace_s=0.05)
        capsule = constant(engine, 0.2)
        executor.gate.clear()

        def ask_and_leave() -> Coroutine[Any, Any, Outcome]:
            loop = asyncio.new_event_loop()
            call: Coroutine[Any, Any, Outcome] = engine.classify(
                rows_for(capsule, "w1"), timeout=TIMEOUT
            )
            task = loop.create_task(call)
            loop.run_until_complete(until(executor.inside.is_set))
            loop.close()
            assert not task.done()
            return call

        call = await asyncio.to_thread(ask_and_leave)
        waiting = asyncio.create_task(engine.classify(rows_for(capsule, "w1"), timeout=TIMEOUT))
        await until(lambda: engine.queue_depth == 1)
        await engine.stop()
        with pytest.raises(Unavailable):
            await waiting
        call.close()
        executor.gate.set()
        engine.worker.thread.join(TIMEOUT)
        assert_at_rest(engine)
