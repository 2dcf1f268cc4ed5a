import asyncio
import math
from unittest.mock import Mock

import pytest
import torch
from structlog.testing import capture_logs

from capsules.core import Encoding
from service.engine.batcher import Limits
from service.engine.records import RowAnswer
from service.engine.request import Row
from service.engine.worker import answer, blank_prompts, reply, report, warm_up_shapes
from service.errors import InternalError
from tests.support.requests import queued_rows


class TestWarmUp:
    def test_one_row_and_a_full_batch_of_each_length(self):
        limits = Limits(max_rows=32, max_tokens=2048)
        assert list(warm_up_shapes(limits, 512)) == [(1, 16), (32, 16), (1, 128), (15, 128)]

    def test_no_text_is_longer_than_the_backbone_takes_and_no_batch_empty(self):
        limits = Limits(max_rows=4, max_tokens=10)
        assert list(warm_up_shapes(limits, 64)) == [(1, 16), (1, 16), (1, 64), (1, 64)]

    def test_the_blank_capsules_fit_the_backbone(self, info):
        (group,) = blank_prompts(info, 3, torch.device("cpu")).groups
        assert group.tensors["capsule"].shape == (3, info.num_layers, 1, info.hidden_size)


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
        reply(rows, answers, picked=rows[0].enqueued + 2.0, seconds=0.5)
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
            reply([lost, kept], [given, given], picked=0.0, seconds=0.0)
        running.call_soon_threadsafe.assert_called_once()
        assert [(entry["event"], entry["rows"]) for entry in logs] == [("reply_dropped", 1)]


async def test_a_report_counts_slots_and_padding():
    rows = queued_rows([3, 5])
    longer = Row(
        rows[0].request, 0, rows[0].capsule, Encoding((1,) * 9, truncated=True), rows[0].enqueued
    )
    made = report([*rows, longer], picked=rows[0].enqueued + 1.0, seconds=0.25)
    assert (made.rows, made.tokens, made.padded_tokens, made.tasks) == (3, 20, 30, 1)
    assert made.forward_seconds == 0.25
    assert made.queue_seconds == pytest.approx((1.0, 1.0, 1.0))
