import asyncio

import pytest

from service.engine.records import RowAnswer
from service.engine.request import Answered
from service.errors import InternalError, Unavailable
from tests.support.requests import queued_rows

ANSWER = RowAnswer((1.0,), input_tokens=5, truncated=False)
STOPPED = Unavailable("The engine has stopped.", code="engine_stopped")


async def test_answers_come_back_in_the_order_of_the_rows():
    rows = queued_rows([5, 5])
    request = rows[0].request
    error = InternalError("It failed.", code="inference_failed")
    request.settle(1, error)
    assert not request.finished.done()
    request.settle(0, ANSWER)
    assert await request.answered() == (ANSWER, error)


async def test_the_longest_wait_and_the_longest_batch_count():
    rows = queued_rows([5, 5])
    start = rows[0].enqueued
    Answered([(rows[0], ANSWER)], begun=start + 1.0, seconds=0.5).deliver()
    Answered([(rows[1], ANSWER)], begun=start + 3.0, seconds=0.25).deliver()
    assert rows[0].request.queue_seconds == pytest.approx(3.0)
    assert rows[0].request.forward_seconds == 0.5


async def test_a_failed_request_raises_whatever_was_answered():
    request = queued_rows([5, 5])[0].request
    request.settle(0, ANSWER)
    request.fail(STOPPED)
    with pytest.raises(Unavailable) as caught:
        await request.answered()
    assert caught.value is STOPPED


async def test_a_request_that_is_answered_cannot_fail_any_more():
    request = queued_rows([5])[0].request
    request.settle(0, ANSWER)
    request.fail(STOPPED)
    assert await request.answered() == (ANSWER,)


async def test_a_request_waits_no_longer_than_its_deadline():
    request = queued_rows([5], timeout=0.01)[0].request
    with pytest.raises(TimeoutError):
        await request.answered()
    request.settle(0, ANSWER)
    request.fail(STOPPED)
    request.expire()
    with pytest.raises(TimeoutError):
        await request.answered()


async def test_what_is_answered_before_the_deadline_stays_answered():
    request = queued_rows([5])[0].request
    request.settle(0, ANSWER)
    request.expire()
    assert await request.answered() == (ANSWER,)


async def test_answers_for_a_caller_that_was_cancelled_are_taken_in_silence():
    request = queued_rows([5])[0].request
    waiting = asyncio.create_task(request.answered())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    request.settle(0, ANSWER)
    assert request.answers == [ANSWER]
