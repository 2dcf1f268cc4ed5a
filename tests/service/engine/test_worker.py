"""The batch that is prepared while another runs."""

import asyncio
import time

import pytest
from structlog.testing import capture_logs

from service.engine.prepared import Prepared
from service.errors import DeadlineExceeded, Unavailable
from tests.support.engines import TIMEOUT, assert_at_rest, constant, occupied, shares
from tests.support.requests import rows_for, until

ROWS = 4


async def ahead_of(engine, executor, capsule, *texts: str, patience: float = TIMEOUT):
    """A request whose rows, a full batch, are prepared while the model is busy with another."""
    running = await occupied(engine, executor, capsule)
    prepared = len(executor.prepared)
    request = asyncio.create_task(engine.classify(rows_for(capsule, *texts), timeout=patience))
    await until(lambda: len(executor.prepared) > prepared)
    return running, request


@pytest.fixture
async def engine(start_engine):
    return await start_engine(max_batch_rows=ROWS)


async def test_a_full_batch_is_prepared_while_the_model_runs(engine, executor, observer):
    capsule = constant(engine, 0.2)
    running, ahead = await ahead_of(engine, executor, capsule, *["w1"] * ROWS)
    assert len(executor.batches) == 1
    assert engine.queue_depth == 0
    assert sum(entry.leases for entry in engine.bank.entries.values()) == 1 + ROWS
    executor.gate.set()
    assert shares((await running).rows + (await ahead).rows) == [0.2] * (1 + ROWS)
    await until(lambda: observer.counts["batched"] == 1 + ROWS)
    assert [report.ahead for report in observer.reports] == [False, True]
    assert executor.threads == {"model"}
    assert_at_rest(engine)


async def test_there_is_one_batch_ahead_and_no_more(engine, executor):
    capsule = constant(engine, 0.2)
    running, ahead = await ahead_of(engine, executor, capsule, *["w1"] * ROWS)
    more = asyncio.create_task(
        engine.classify(rows_for(capsule, *["w1"] * 3 * ROWS), timeout=TIMEOUT)
    )
    await until(lambda: engine.queue_depth == 3 * ROWS)
    await asyncio.sleep(0.02)
    assert engine.queue_depth == 3 * ROWS
    executor.gate.set()
    await asyncio.gather(running, ahead, more)
    assert [len(batch) for batch in executor.batches] == [1, ROWS, ROWS, ROWS, ROWS]


async def test_a_batch_that_would_get_better_by_waiting_is_left_in_the_queue(engine, executor):
    capsule = constant(engine, 0.2)
    running = await occupied(engine, executor, capsule)
    calls = [
        asyncio.create_task(engine.classify(rows_for(capsule, "w1"), timeout=TIMEOUT))
        for _ in range(ROWS - 1)
    ]
    await until(lambda: engine.queue_depth == ROWS - 1)
    await asyncio.sleep(0.02)
    assert engine.queue_depth == ROWS - 1
    executor.gate.set()
    await asyncio.gather(running, *calls)
    assert [len(batch) for batch in executor.batches] == [1, ROWS - 1]


async def test_a_swap_does_not_touch_a_batch_that_is_ahead(engine, executor):
    old = constant(engine, 0.2)
    running, ahead = await ahead_of(engine, executor, old, *["w1"] * ROWS)
    engine.bank.remove(old)
    new = constant(engine, 0.7)
    executor.gate.set()
    assert shares((await ahead).rows) == [0.2] * ROWS
    assert shares((await engine.classify(rows_for(new, "w1"), timeout=TIMEOUT)).rows) == [0.7]
    await running
    assert engine.bank.stats().resident == 1


@pytest.mark.parametrize("way", ["cancelled", "expired"])
async def test_a_batch_ahead_that_nobody_waits_for_is_not_run(engine, executor, observer, way):
    capsule = constant(engine, 0.2)
    patience = TIMEOUT if way == "cancelled" else 0.2
    running, ahead = await ahead_of(engine, executor, capsule, *["w1"] * ROWS, patience=patience)
    if way == "cancelled":
        ahead.cancel()
    with pytest.raises((asyncio.CancelledError, DeadlineExceeded)):
        await ahead
    assert engine.bank.stats().pinned == 1
    executor.gate.set()
    await running
    await until(lambda: observer.counts["dropped"] == ROWS)
    assert len(executor.batches) == 1
    assert observer.counts[way] == ROWS
    assert_at_rest(engine)


async def test_a_deadline_is_looked_at_again_before_the_batch_runs(engine, executor, observer):
    """Even where the event loop has not come round to telling."""
    capsule = constant(engine, 0.2)
    running, ahead = await ahead_of(engine, executor, capsule, *["w1"] * ROWS, patience=0.5)
    executor.gate.set()
    time.sleep(1.0)  # noqa: ASYNC251 - the event loop is what must not run
    assert observer.counts["dropped"] in (0, ROWS)
    outcomes = await asyncio.gather(running, ahead, return_exceptions=True)
    assert not isinstance(outcomes[0], BaseException)
    await engine.stop()
    assert_at_rest(engine)


async def test_a_batch_ahead_that_cannot_be_prepared_fails_its_rows(engine, executor, observer):
    def fail(tokens):
        raise RuntimeError("boom")

    capsule = constant(engine, 0.2)
    running = await occupied(engine, executor, capsule)
    executor.preparing = fail
    ahead = await engine.classify(rows_for(capsule, *["w1"] * ROWS), timeout=TIMEOUT)
    assert shares(ahead.rows) == ["inference_failed"] * ROWS
    await until(lambda: observer.counts["failed"] == ROWS)
    executor.preparing = lambda tokens: None
    executor.gate.set()
    assert shares((await running).rows) == [0.2]
    assert shares((await engine.classify(rows_for(capsule, "w1"), timeout=TIMEOUT)).rows) == [0.2]
    assert_at_rest(engine)


async def test_the_end_of_the_preparing_thread_ends_the_engine(engine, executor):
    def leave(tokens):
        raise SystemExit(1)

    capsule = constant(engine, 0.2)
    running = await occupied(engine, executor, capsule)
    executor.preparing = leave
    with capture_logs() as logs:
        ahead = asyncio.create_task(
            engine.classify(rows_for(capsule, *["w1"] * ROWS), timeout=TIMEOUT)
        )
        await until(lambda: not engine.worker.others[0].is_alive())
        assert not engine.healthy
        executor.gate.set()
        with pytest.raises(Unavailable, match="stopped"):
            await ahead
    assert shares((await running).rows) == [0.2]
    assert "prepare_thread_died" in [entry["event"] for entry in logs]
    engine.worker.thread.join(TIMEOUT)
    assert_at_rest(engine)


async def test_a_batch_ahead_of_a_model_that_dies_is_released(engine, executor):
    def leave(features):
        raise SystemExit(1)

    capsule = constant(engine, 0.2)
    executor.before = leave
    running, ahead = await ahead_of(engine, executor, capsule, *["w1"] * ROWS)
    executor.gate.set()
    for call in (running, ahead):
        with pytest.raises(Unavailable):
            await call
    engine.worker.thread.join(TIMEOUT)
    assert not engine.worker.others[0].is_alive()
    assert len(executor.batches) == 1
    assert_at_rest(engine)


async def test_stopping_runs_the_batch_ahead(engine, executor):
    capsule = constant(engine, 0.2)
    running, ahead = await ahead_of(engine, executor, capsule, *["w1"] * ROWS)
    stopping = asyncio.create_task(engine.stop())
    await asyncio.sleep(0)
    executor.gate.set()
    assert shares((await running).rows + (await ahead).rows) == [0.2] * (1 + ROWS)
    await stopping
    assert not engine.worker.others[0].is_alive()
    assert_at_rest(engine)


async def test_what_a_batch_holds_is_released_once(engine, executor, monkeypatch):
    closed: list[int] = []
    original = Prepared.wanted

    def noting(self, now):
        self.held.callback(closed.append, len(self.rows))
        return original(self, now)

    monkeypatch.setattr(Prepared, "wanted", noting)
    capsule = constant(engine, 0.2)
    running, ahead = await ahead_of(engine, executor, capsule, *["w1"] * ROWS)
    executor.gate.set()
    await asyncio.gather(running, ahead)
    assert closed == [1, ROWS]
