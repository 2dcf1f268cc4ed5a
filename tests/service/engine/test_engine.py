import asyncio
import time

import pytest
import torch

from service.engine.records import RowRequest, Served
from service.errors import DeadlineExceeded, NotFound, Unavailable, Unprocessable
from tests.support.backbones import words
from tests.support.capsules import random_capsule
from tests.support.engines import TIMEOUT, assert_at_rest, constant, occupied, shares
from tests.support.requests import rows_for, until


class TestAnswers:
    async def test_each_row_is_answered_by_its_own_capsule_in_order(self, start_engine):
        engine = await start_engine()
        first, second = constant(engine, 0.2), constant(engine, 0.7, task="other", length=2)
        rows = [*rows_for(first, words(3), words(9)), *rows_for(second, words(5))]
        outcome = await engine.classify([rows[2], *rows], timeout=TIMEOUT)
        assert shares(outcome.rows) == [0.7, 0.2, 0.2, 0.7]
        assert [row.input_tokens for row in outcome.rows] == [7, 5, 11, 7]
        await until(lambda: engine.bank.stats().pinned == 0)
        assert_at_rest(engine)

    async def test_no_rows_have_no_answers(self, start_engine):
        engine = await start_engine()
        outcome = await engine.classify([], timeout=TIMEOUT)
        assert outcome.rows == ()

    async def test_a_cut_text_says_so(self, start_engine, info):
        engine = await start_engine()
        capsule = random_capsule(info, max_length=12)
        served = engine.bank.add(capsule, version=1, digest="0" * 64)
        outcome = await engine.classify(rows_for(served, words(30), words(2)), timeout=TIMEOUT)
        assert [(row.input_tokens, row.truncated) for row in outcome.rows] == [
            (11, True),
            (4, False),
        ]

    async def test_a_bad_row_costs_the_others_nothing(self, start_engine):
        engine = await start_engine()
        capsule = constant(engine, 0.2)
        rows = rows_for(capsule, "w1", " ", "\ud800", words(99), "w2", truncate=False)
        outcome = await engine.classify(rows, timeout=TIMEOUT)
        assert shares(outcome.rows) == [0.2, "empty_text", "invalid_text", "text_too_long", 0.2]
        assert all(isinstance(outcome.rows[i], Unprocessable) for i in (1, 2, 3))
        assert_at_rest(engine)

    async def test_nothing_but_bad_rows_needs_no_model(self, start_engine, executor):
        engine = await start_engine()
        outcome = await engine.classify(rows_for(constant(engine, 0.2), "", " "), timeout=TIMEOUT)
        assert shares(outcome.rows) == ["empty_text"] * 2
        assert executor.batches == []

    async def test_a_text_asked_of_many_tasks_is_tokenised_once(self, start_engine, monkeypatch):
        engine = await start_engine()
        asked: list[str] = []
        encode = engine.loaded.tokeniser.encode

        def noting(texts, max_tokens):
            asked.extend(texts)
            return encode(texts, max_tokens)

        monkeypatch.setattr(engine.loaded.tokeniser, "encode", noting)
        rows = [
            RowRequest(constant(engine, share, task=f"t{share}"), {"text": "w1"})
            for share in (0.1, 0.2, 0.3)
        ]
        outcome = await engine.classify(rows, timeout=TIMEOUT)
        assert shares(outcome.rows) == [0.1, 0.2, 0.3]
        assert asked == ["w1"]

    async def test_a_large_request_goes_through_in_several_turns(self, start_engine, executor):
        engine = await start_engine()
        rows = rows_for(constant(engine, 0.2), *[words(1 + n % 20) for n in range(700)])
        outcome = await engine.classify(rows, timeout=TIMEOUT)
        assert shares(outcome.rows) == [0.2] * 700
        assert [row.input_tokens for row in outcome.rows] == [3 + n % 20 for n in range(700)]
        assert max(map(len, executor.batches)) == 32

    async def test_the_time_of_each_stage_is_told(self, start_engine, executor):
        engine = await start_engine()
        capsule = constant(engine, 0.2)
        first = await occupied(engine, executor, capsule)
        second = asyncio.create_task(engine.classify(rows_for(capsule, "w1"), timeout=TIMEOUT))
        await until(lambda: engine.queue_depth == 1)
        await asyncio.sleep(0.05)
        executor.gate.set()
        running, waiting = (await first).timings, (await second).timings
        assert running.forward >= 0.05 > running.queue
        assert waiting.queue >= 0.05 > waiting.forward
        assert min(running.tokenise, waiting.tokenise) > 0

    async def test_the_model_runs_in_its_thread_only(self, start_engine, executor):
        engine = await start_engine()
        await engine.classify(rows_for(constant(engine, 0.2), "w1"), timeout=TIMEOUT)
        assert executor.threads == {"model"}

    async def test_torchs_threads_are_set_where_the_model_runs(self, start_engine, executor):
        seen: list[int] = []

        def note(features: torch.Tensor) -> torch.Tensor:
            seen.append(torch.get_num_threads())
            return features

        executor.before = note
        before = torch.get_num_threads()
        try:
            await start_engine(threads=before + 1)
        finally:
            torch.set_num_threads(before)
        assert set(seen) == {before + 1}

    async def test_rows_that_wait_together_run_together(self, start_engine, executor):
        engine = await start_engine()
        capsules = [constant(engine, share, task=f"t{share}") for share in (0.1, 0.2, 0.3, 0.4)]
        running = await occupied(engine, executor, capsules[0])
        calls = [
            asyncio.create_task(engine.classify(rows_for(capsule, "w1"), timeout=TIMEOUT))
            for capsule in capsules[1:]
        ]
        await until(lambda: engine.queue_depth == 3)
        executor.gate.set()
        outcomes = await asyncio.gather(running, *calls)
        assert [shares(outcome.rows) for outcome in outcomes] == [[0.1], [0.2], [0.3], [0.4]]
        assert [len(batch) for batch in executor.batches] == [1, 3]

    async def test_two_event_loops_are_served_at_once(self, start_engine):
        engine = await start_engine()
        capsules = [constant(engine, 0.2), constant(engine, 0.7)]

        async def ask(capsule: Served) -> list[float | str]:
            rows = rows_for(capsule, *["w1"] * 20)
            outcomes = [await engine.classify(rows, timeout=TIMEOUT) for _ in range(10)]
            return [share for outcome in outcomes for share in shares(outcome.rows)]

        elsewhere = asyncio.to_thread(lambda: asyncio.run(ask(capsules[1])))
        here, there = await asyncio.gather(ask(capsules[0]), elsewhere)
        assert (here, there) == ([0.2] * 200, [0.7] * 200)


class TestSwap:
    async def test_a_capsule_removed_while_its_row_runs_still_answers(self, start_engine, executor):
        engine = await start_engine()
        old = constant(engine, 0.2)
        running = await occupied(engine, executor, old)
        waiting = asyncio.create_task(engine.classify(rows_for(old, "w1"), timeout=TIMEOUT))
        await until(lambda: engine.queue_depth == 1)
        engine.bank.remove(old)
        new = constant(engine, 0.7)
        executor.gate.set()
        assert shares((await running).rows) == shares((await waiting).rows) == [0.2]
        assert shares((await engine.classify(rows_for(new, "w1"), timeout=TIMEOUT)).rows) == [0.7]
        assert engine.bank.stats().resident == 1

    async def test_a_capsule_is_kept_from_the_call_on(self, start_engine):
        engine = await start_engine()
        capsule = constant(engine, 0.2)
        call = engine.classify(rows_for(capsule, "w1"), timeout=TIMEOUT)
        task = asyncio.create_task(call)
        await asyncio.sleep(0)
        engine.bank.remove(capsule)
        assert shares((await task).rows) == [0.2]

    async def test_a_capsule_removed_before_the_call_is_not_found(self, start_engine):
        engine = await start_engine()
        gone, kept = constant(engine, 0.2), constant(engine, 0.7)
        engine.bank.remove(gone)
        rows = [*rows_for(gone, "w1"), *rows_for(kept, "w1")]
        outcome = await engine.classify(rows, timeout=TIMEOUT)
        assert shares(outcome.rows) == ["version_not_found", 0.7]
        assert isinstance(outcome.rows[0], NotFound)
        outcome = await engine.classify(rows_for(gone, "w1"), timeout=TIMEOUT)
        assert shares(outcome.rows) == ["version_not_found"]
        assert_at_rest(engine)


class TestLimits:
    async def test_a_request_that_does_not_fit_is_refused_whole(
        self, start_engine, executor, observer
    ):
        engine = await start_engine(queue_rows=5)
        capsule = constant(engine, 0.2)
        running = await occupied(engine, executor, capsule)
        waiting = asyncio.create_task(engine.classify(rows_for(capsule, *"abc"), timeout=TIMEOUT))
        await until(lambda: engine.queue_depth == 3)
        with pytest.raises(Unavailable) as caught:
            await engine.classify(rows_for(capsule, *"abc"), timeout=TIMEOUT)
        assert (caught.value.code, caught.value.retry_after) == ("queue_full", 1)
        assert observer.counts["rejected:queue_full"] == 3
        executor.gate.set()
        assert shares((await running).rows + (await waiting).rows) == [0.2] * 4
        assert (
            shares((await engine.classify(rows_for(capsule, *"abc"), timeout=TIMEOUT)).rows)
            == [0.2] * 3
        )

    async def test_a_busy_model_does_not_delay_a_deadline(self, start_engine, executor, observer):
        engine = await start_engine()
        capsule = constant(engine, 0.2)
        running = await occupied(engine, executor, capsule)
        started = time.monotonic()
        with pytest.raises(DeadlineExceeded) as caught:
            await engine.classify(rows_for(capsule, "w2", "w3"), timeout=0.05)
        assert 0.04 < time.monotonic() - started < 2.0
        assert caught.value.code == "deadline_exceeded"
        assert engine.queue_depth == 0
        assert observer.counts["expired"] == 2
        executor.gate.set()
        await running
        await engine.stop()
        assert len(executor.batches) == 1
        assert_at_rest(engine)

    async def test_a_deadline_holds_for_rows_that_run(self, start_engine, executor):
        engine = await start_engine()
        executor.gate.clear()
        with pytest.raises(DeadlineExceeded):
            await engine.classify(rows_for(constant(engine, 0.2), "w1"), timeout=0.05)
        executor.gate.set()
        await engine.stop()
        assert_at_rest(engine)

    @pytest.mark.parametrize("seconds", [0.0, -1.0])
    async def test_no_time_is_too_little(self, start_engine, seconds):
        engine = await start_engine()
        with pytest.raises(DeadlineExceeded):
            await engine.classify(rows_for(constant(engine, 0.2), "w1"), timeout=seconds)
        await engine.stop()
        assert_at_rest(engine)

    async def test_a_client_that_goes_away_takes_its_rows_along(
        self, start_engine, executor, observer
    ):
        engine = await start_engine(queue_rows=3)
        capsule = constant(engine, 0.2)
        running = await occupied(engine, executor, capsule)
        gone = asyncio.create_task(engine.classify(rows_for(capsule, *"abc"), timeout=TIMEOUT))
        await until(lambda: engine.queue_depth == 3)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        assert engine.queue_depth == 0
        assert observer.counts["cancelled"] == 3
        others = asyncio.create_task(engine.classify(rows_for(capsule, *"abc"), timeout=TIMEOUT))
        await until(lambda: engine.queue_depth == 3)
        executor.gate.set()
        assert shares((await running).rows + (await others).rows) == [0.2] * 4
        await engine.stop()
        assert sum(map(len, executor.batches)) == 4
        assert_at_rest(engine)

    async def test_rows_are_marked_before_they_are_withdrawn(
        self, start_engine, executor, monkeypatch
    ):
        """So that a batch which is put together at that moment leaves them out."""
        engine = await start_engine()
        capsule = constant(engine, 0.2)
        running = await occupied(engine, executor, capsule)
        marked: list[bool] = []
        withdraw = engine.queue.withdraw

        def noting(rows):
            marked.extend(row.cancelled for row in rows)
            return withdraw(rows)

        monkeypatch.setattr(engine.queue, "withdraw", noting)
        with pytest.raises(DeadlineExceeded):
            await engine.classify(rows_for(capsule, "w1", "w2"), timeout=0.05)
        assert marked == [True, True]
        executor.gate.set()
        await running

    async def test_a_client_may_go_away_while_its_rows_run_or_are_tokenised(
        self, start_engine, executor, observer
    ):
        engine = await start_engine()
        capsule = constant(engine, 0.2)
        running = await occupied(engine, executor, capsule)
        tokenising = asyncio.create_task(engine.classify(rows_for(capsule, "w1"), timeout=TIMEOUT))
        await asyncio.sleep(0)
        for task in (running, tokenising):
            task.cancel()
        await asyncio.gather(running, tokenising, return_exceptions=True)
        executor.gate.set()
        assert shares((await engine.classify(rows_for(capsule, "w1"), timeout=TIMEOUT)).rows) == [
            0.2
        ]
        await engine.stop()
        assert observer.counts["cancelled"] == 2
        assert_at_rest(engine)


class TestObserver:
    async def test_it_is_told_of_every_batch(self, start_engine, observer):
        engine = await start_engine()
        rows = [
            *rows_for(constant(engine, 0.2), words(3), words(4)),
            *rows_for(constant(engine, 0.7, task="other"), words(4)),
        ]
        await engine.classify([*rows, *rows_for(rows[0].capsule, "")], timeout=TIMEOUT)
        await until(lambda: observer.counts["batched"] == 3)
        assert observer.counts == {"tokenised": 4, "batched": 3}
        assert sum(one.tokens for one in observer.reports) == 3 + 4 + 4 + 3 * 3
        assert all(one.padded_tokens >= one.tokens for one in observer.reports)
        assert all(len(one.queue_seconds) == one.rows for one in observer.reports)
