import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from service.engine.batcher import Limits
from service.engine.queue import RowQueue
from service.errors import Unavailable
from tests.support.requests import queued_rows

LIMITS = Limits(max_rows=4, max_tokens=1000)


@pytest.fixture
def queue() -> RowQueue:
    return RowQueue(capacity=10, limits=LIMITS)


def fill(queue: RowQueue, tokens: list[int], timeout: float = 60.0):
    queue.reserve(len(tokens))
    rows = queued_rows(tokens, timeout=timeout)
    queue.put(rows)
    return rows


class TestCapacity:
    def test_a_request_is_taken_whole_or_not_at_all(self, queue):
        queue.reserve(8)
        with pytest.raises(Unavailable) as caught:
            queue.reserve(3)
        assert caught.value.code == "queue_full"
        assert caught.value.retry_after == 1
        queue.reserve(2)

    def test_released_places_can_be_reserved_again(self, queue):
        queue.reserve(10)
        queue.release(4)
        queue.reserve(4)

    async def test_rows_that_wait_take_the_places_reserved_for_them(self, queue):
        fill(queue, [5] * 6)
        assert len(queue) == 6
        queue.reserve(4)
        with pytest.raises(Unavailable):
            queue.reserve(1)

    async def test_rows_taken_make_room(self, queue):
        fill(queue, [5] * 10)
        picked = queue.take()
        assert picked is not None
        queue.reserve(len(picked.batch))

    async def test_rows_withdrawn_make_room_at_once(self, queue):
        rows = fill(queue, [5] * 10)
        assert queue.withdraw(rows[2:5]) == rows[2:5]
        assert len(queue) == 7
        queue.reserve(3)


class TestTaking:
    async def test_rows_go_in_the_order_of_their_arrival(self, queue):
        first, second = fill(queue, [5] * 3), fill(queue, [5] * 3)
        assert queue.take().batch == (*first, second[0])
        assert queue.take().batch == (*second[1:],)
        assert len(queue) == 0

    async def test_rows_already_taken_are_not_withdrawn(self, queue):
        rows = fill(queue, [5] * 5)
        queue.take()
        assert queue.withdraw(rows) == rows[4:]

    async def test_dead_rows_are_handed_out_to_be_dropped(self, queue):
        cancelled, live = fill(queue, [5]), fill(queue, [5])
        expired = fill(queue, [5], timeout=-1)
        cancelled[0].request.cancelled = True
        picked = queue.take()
        assert picked.batch == (*live,)
        assert picked.cancelled == (*cancelled,)
        assert picked.expired == (*expired,)
        assert len(queue) == 0

    async def test_time_is_told_by_the_clock_it_was_given(self):
        queue = RowQueue(capacity=10, limits=LIMITS, clock=lambda: time.monotonic() + 1000)
        rows = fill(queue, [5])
        picked = queue.take()
        assert picked is not None
        assert picked.expired == (*rows,)

    async def test_an_idle_taker_is_woken_by_the_first_row(self, queue):
        with ThreadPoolExecutor() as pool:
            taking = pool.submit(queue.take)
            await asyncio.sleep(0.02)
            assert not taking.done()
            rows = fill(queue, [5])
            assert (await asyncio.wrap_future(taking)).batch == (*rows,)


class TestEnd:
    async def test_a_closed_queue_refuses_requests_and_lets_the_others_finish(self, queue):
        queue.reserve(2)
        rows = queued_rows([5, 5])
        queue.close()
        with pytest.raises(Unavailable) as caught:
            queue.reserve(1)
        assert caught.value.code == "engine_stopped"
        queue.put(rows)
        assert queue.take().batch == (*rows,)
        assert queue.take() is None

    @pytest.mark.parametrize("ending", ["release", "withdraw", "shut"])
    async def test_the_last_row_to_go_ends_a_taker_that_waits(self, queue, ending):
        queue.reserve(1)
        queue.close()
        with ThreadPoolExecutor() as pool:
            taking = pool.submit(queue.take)
            await asyncio.sleep(0.02)
            assert not taking.done()
            if ending == "release":
                queue.release(1)
            elif ending == "shut":
                queue.shut()
            else:
                rows = queued_rows([5])
                with queue.changed:
                    queue.put(rows)
                    assert queue.withdraw(rows) == rows
            assert await asyncio.wrap_future(taking) is None

    async def test_a_shut_queue_takes_no_rows_and_gives_none(self, queue):
        waiting = fill(queue, [5])
        queue.reserve(1)
        queue.shut()
        with pytest.raises(Unavailable) as caught:
            queue.put(queued_rows([5]))
        assert caught.value.code == "engine_stopped"
        assert queue.take() is None
        assert queue.withdraw(waiting) == waiting
