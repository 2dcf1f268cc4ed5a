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
    assert not request.finished.is_set()
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
