import asyncio
import math
from contextlib import ExitStack
from unittest.mock import Mock

import pytest
from structlog.testing import capture_logs

from capsules.core import Encoding
from service.engine.batcher import Limits
from service.engine.observer import BatchReport
from service.engine.prepared import Prepared
from service.engine.records import RowAnswer
from service.engine.replies import answer, reply, report
from service.engine.request import Row
from service.errors import InternalError
from tests.support.requests import queued_rows


class TestAnswer:
    async def test_probabilities_become_the_rows_answer(self):
        (row,) = queued_rows([7])
        assert answer(row, (0.25, 0.75)) == RowAnswer((0.25, 0.75), input_tokens=7, truncated=False)

    @pytest.mark.parametrize("value", [math.nan, math.inf])
    async def test_scores_that_are_no_numbers_are_an_error(self, value):
        (row,) = queued_rows([7])
        error = answer(row, (0.5, value))
        assert isinstance(error, InternalError)
        assert error.code == "non_finite_scores"


class TestReply:
    async def test_each_event_loop_gets_one_message(self):
        loops = [Mock(spec=asyncio.AbstractEventLoop) for _ in range(2)]
        rows: list[Row] = []
        for loop in (*loops, *loops):
            some = queued_rows([5, 5])
            some[0].request.loop = loop
            rows += some
        answers = [RowAnswer((float(n),), 5, truncated=False) for n in range(len(rows))]
        reply(rows, answers, begun=rows[0].enqueued + 2.0, seconds=0.5)
        for loop in loops:
            loop.call_soon_threadsafe.assert_called_once()
            (deliver,) = loop.call_soon_threadsafe.call_args.args
            deliver()
        for row, given in zip(rows, answers, strict=True):
            assert row.request.answers[row.index] == given
        assert rows[0].request.queue_seconds == pytest.approx(2.0)
        assert rows[0].request.forward_seconds == 0.5
        assert await rows[0].request.answered() == (*answers[:2],)

    async def test_a_closed_event_loop_costs_the_others_nothing(self):
        (lost,), (kept,) = queued_rows([5]), queued_rows([5])
        closed, running = (Mock(spec=asyncio.AbstractEventLoop) for _ in range(2))
        closed.call_soon_threadsafe.side_effect = RuntimeError("Event loop is closed")
        lost.request.loop, kept.request.loop = closed, running
        given = RowAnswer((1.0,), 5, truncated=False)
        with capture_logs() as logs:
            reply([lost, kept], [given, given], begun=0.0, seconds=0.0)
        running.call_soon_threadsafe.assert_called_once()
        assert [(entry["event"], entry["rows"]) for entry in logs] == [("reply_dropped", 1)]

    async def test_a_loop_that_takes_nothing_costs_the_others_nothing(self):
        (lost,), (kept,) = queued_rows([5]), queued_rows([5])
        full, running = (Mock(spec=asyncio.AbstractEventLoop) for _ in range(2))
        full.call_soon_threadsafe.side_effect = MemoryError("no room for a callback")
        lost.request.loop, kept.request.loop = full, running
        given = RowAnswer((1.0,), 5, truncated=False)
        reply([lost, kept], [given, given], begun=0.0, seconds=0.0)
        running.call_soon_threadsafe.assert_called_once()


class TestReport:
    def reported(self, rows: list[Row], *, padding_free: bool) -> BatchReport:
        batch = Prepared(
            rows=rows, forward=Mock(), heads=Mock(), held=ExitStack(), ahead=True, seconds=0.125
        )
        limits = Limits(max_rows=8, max_tokens=100, padding_free=padding_free)
        return report(batch, limits, begun=rows[0].enqueued + 1.0, seconds=0.25)

    async def rows(self) -> list[Row]:
        rows = queued_rows([3, 5])
        encoding = Encoding((1,) * 9, truncated=True)
        return [*rows, Row(rows[0].request, 0, rows[0].capsule, encoding, rows[0].enqueued)]

    async def test_it_counts_slots_and_padding(self):
        made = self.reported(await self.rows(), padding_free=False)
        assert (made.rows, made.tokens, made.padded_tokens, made.tasks) == (3, 20, 30, 1)
        assert (made.forward_seconds, made.prepare_seconds, made.ahead) == (0.25, 0.125, True)
        assert made.queue_seconds == pytest.approx((1.0, 1.0, 1.0))

    async def test_an_executor_that_pads_nothing_computes_what_is_real(self):
        made = self.reported(await self.rows(), padding_free=True)
        assert (made.tokens, made.padded_tokens) == (20, 20)
