import asyncio
import contextlib
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from service.engine.batcher import Limits
from service.engine.queue import AHEAD, RowQueue, Share
from service.errors import TooManyRequests, Unavailable
from tests.support.requests import queued_rows

LIMITS = Limits(max_rows=4, max_tokens=1000)


@pytest.fixture
def queue() -> RowQueue:
    return RowQueue(capacity=10, limits=LIMITS)


def fill(queue: RowQueue, tokens: list[int], timeout: float = 60.0, caller: str = ""):
    queue.reserve(len(tokens), caller)
    rows = queued_rows(tokens, timeout=timeout, caller=caller)
    queue.put(rows)
    return rows


class TestCapacity:
    def test_a_request_is_taken_whole_or_not_at_all(self, queue):
        queue.reserve(8, "a")
        with pytest.raises(Unavailable) as caught:
            queue.reserve(3, "b")
        assert caught.value.code == "queue_full"
        assert caught.value.retry_after == 1
        queue.reserve(2, "b")

    def test_released_places_can_be_reserved_again(self, queue):
        queue.reserve(10)
        queue.release(4)
        queue.reserve(4, "b")

    async def test_rows_that_wait_take_the_places_reserved_for_them(self, queue):
        fill(queue, [5] * 6)
        assert len(queue) == 6
        queue.reserve(4, "b")
        with pytest.raises(Unavailable):
            queue.reserve(1, "c")

    async def test_rows_taken_make_room(self, queue):
        fill(queue, [5] * 10)
        picked = queue.take()
        assert picked is not None
        queue.reserve(len(picked.batch), "b")
        with pytest.raises(Unavailable):
            queue.reserve(1, "c")

    async def test_rows_withdrawn_make_room_at_once(self, queue):
        rows = fill(queue, [5] * 10)
        assert queue.withdraw(rows[2:5]) == rows[2:5]
        assert len(queue) == 7
        queue.reserve(3, "b")


class TestShares:
    """`capacity` 100: a caller of weight 1 holds at most four places for each one left free."""

    @pytest.fixture
    def queue(self) -> RowQueue:
        return RowQueue(capacity=100, limits=LIMITS, weights={"heavy": 4.0, "light": 0.25})

    def most(self, queue: RowQueue, caller: str) -> int:
        """How many places it gets, one by one."""
        while (refusal := queue.refusal(1, caller)) is None:
            queue.reserve(1, caller)
        with pytest.raises(TooManyRequests) as caught:
            queue.reserve(1, caller)
        assert (caught.value.status, caught.value.code) == (429, refusal.code)
        assert (caught.value.code, caught.value.retry_after) == ("caller_queue_full", 1)
        return queue.held[caller]

    def test_a_flood_leaves_room_for_others(self, queue):
        assert self.most(queue, "flood") == 80
        queue.reserve(20, "other")

    def test_the_more_callers_the_less_for_each(self, queue):
        taken = [self.most(queue, str(number)) for number in range(3)]
        assert taken == [80, 16, 3]
        queue.reserve(1, "last")

    def test_together_they_settle_at_equal_shares(self, queue):
        held = {"a": 0, "b": 0}
        for turn in range(400):
            caller = "ab"[turn % 2]
            with contextlib.suppress(TooManyRequests):
                queue.reserve(1, caller)
                held[caller] += 1
        assert held == {"a": 44, "b": 44}

    def test_a_weight_is_a_larger_share(self, queue):
        assert self.most(queue, "heavy") == 94
        queue.release(94, "heavy")
        assert self.most(queue, "light") == 50

    def test_a_caller_that_holds_nothing_may_have_all_that_is_free(self, queue):
        queue.reserve(100, "a")
        queue.release(100, "a")
        queue.reserve(60, "b")
        queue.reserve(40, "light")

    async def test_places_are_given_back_by_whatever_ends_a_row(self, queue):
        rows = fill(queue, [5] * 80, caller="flood")
        with pytest.raises(TooManyRequests, match="80 row"):
            queue.reserve(1, "flood")
        taken = queue.take()
        assert taken is not None
        queue.withdraw(rows[10:20])
        queue.reserve(1, "flood")
        queue.release(1, "flood")
        assert queue.held == {"flood": 70 - len(taken.batch)}
        while len(queue):
            queue.take()
        assert queue.held == {}

    def test_places_given_back_twice_are_our_own_fault(self, queue):
        queue.reserve(2, "a")
        with pytest.raises(AssertionError, match="gave back more"):
            queue.release(3, "a")


class TestTurns:
    async def test_callers_take_turns_in_a_batch(self, queue):
        flood = fill(queue, [5] * 6, caller="flood")
        (other,) = fill(queue, [5], caller="other")
        assert queue.take().batch == (flood[0], other, *flood[1:3])


class TestAhead:
    """The second taker: while the model runs, one batch, once a full one waits."""

    @pytest.fixture
    def queue(self) -> RowQueue:
        return RowQueue(capacity=100, limits=Limits(max_rows=4, max_tokens=100))

    async def test_it_waits_until_the_model_runs_and_a_full_batch_is_there(self, queue):
        with ThreadPoolExecutor() as pool:
            taking = pool.submit(queue.take_ahead)
            first = fill(queue, [5] * 5)
            await asyncio.sleep(0.02)
            assert not taking.done()
            assert queue.take().batch == (*first[:4],)
            await asyncio.sleep(0.02)
            assert not taking.done()
            more = fill(queue, [5] * 2)
            await asyncio.sleep(0.02)
            assert not taking.done()
            more += fill(queue, [5])
            assert (await asyncio.wrap_future(taking)).batch == (first[4], *more)

    async def test_a_few_long_rows_are_enough(self, queue):
        fill(queue, [5])
        queue.take()
        with ThreadPoolExecutor() as pool:
            taking = pool.submit(queue.take_ahead)
            (long,) = fill(queue, [110])
            assert (await asyncio.wrap_future(taking)).batch == (long,)

    async def test_the_model_gets_what_is_ahead_before_what_waits(self, queue):
        fill(queue, [5])
        queue.take()
        ahead = fill(queue, [5] * 4)
        picked = queue.take_ahead()
        assert picked is not None
        assert picked.batch == (*ahead,)
        waiting = fill(queue, [5] * 4)
        assert queue.take() is AHEAD
        assert queue.take().batch == (*waiting,)

    async def test_there_is_one_ahead_until_the_model_comes_for_it(self, queue):
        fill(queue, [5] * 12)
        queue.take()
        queue.take_ahead()
        with ThreadPoolExecutor() as pool:
            taking = pool.submit(queue.take_ahead)
            await asyncio.sleep(0.02)
            assert not taking.done()
            assert queue.take() is AHEAD
            assert len((await asyncio.wrap_future(taking)).batch) == 4

    @pytest.mark.parametrize("ending", ["close", "shut"])
    async def test_it_ends_with_the_queue(self, queue, ending):
        with ThreadPoolExecutor() as pool:
            taking = pool.submit(queue.take_ahead)
            await asyncio.sleep(0.02)
            getattr(queue, ending)()
            assert await asyncio.wrap_future(taking) is None

    async def test_a_closed_queue_still_gives_what_is_ahead(self, queue):
        fill(queue, [5] * 8)
        queue.take()
        queue.take_ahead()
        queue.close()
        assert queue.take_ahead() is None
        assert queue.take() is AHEAD
        assert queue.take() is None


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
                with queue.lock:
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


class TestLanes:
    """Several threads take from a queue: all of them here, one after the other."""

    @pytest.fixture
    def queue(self) -> RowQueue:
        limits = Limits(max_rows=4, max_tokens=30, padding_free=True)
        return RowQueue(capacity=20, limits=limits, lanes=2)

    @staticmethod
    def tokens(share: Share | None) -> list[int]:
        assert share is not None
        return [row.tokens for row in share.picked.batch]

    async def test_what_waits_is_divided_between_the_threads_that_are_free(self, queue):
        fill(queue, [5, 5, 5, 5])  # each with a slot for its capsule: 24 positions
        first, second = queue.take_share(None), queue.take_share(None)
        assert (self.tokens(first), self.tokens(second)) == ([5, 5], [5, 5])
        assert not first.alone
        assert not second.alone

    async def test_the_last_free_thread_takes_all_that_fits(self, queue):
        fill(queue, [5, 5])
        queue.take_share(None)
        fill(queue, [5, 5, 5])
        assert self.tokens(queue.take_share(None)) == [5, 5, 5, 5]

    async def test_no_share_is_larger_than_a_batch_may_be(self, queue):
        fill(queue, [9] * 12)
        assert self.tokens(queue.take_share(None)) == [9, 9, 9]

    async def test_a_single_row_that_finds_all_threads_free_runs_alone(self, queue):
        fill(queue, [5])
        first = queue.take_share(None)
        assert first.alone
        fill(queue, [5])
        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(queue.take_share, None)
            with pytest.raises(TimeoutError):
                other.result(0.05)
            queue.close()
            last = queue.take_share(first)
            assert self.tokens(last) == [5]
            assert other.result(5) is None
            assert queue.take_share(last) is None

    async def test_a_row_beside_a_running_batch_is_not_alone(self, queue):
        fill(queue, [5, 5])
        queue.take_share(None)
        assert not queue.take_share(None).alone

    async def test_a_closed_queue_is_emptied_and_a_shut_one_left(self, queue):
        fill(queue, [5, 5])
        queue.close()
        first, second = queue.take_share(None), queue.take_share(None)
        assert (queue.take_share(first), queue.take_share(second)) == (None, None)
        other = RowQueue(capacity=20, limits=LIMITS, lanes=2)
        fill(other, [5])
        other.shut()
        assert other.take_share(None) is None
        assert len(other) == 1
