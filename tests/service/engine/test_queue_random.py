"""Random schedules of the queue, by a clock of their own: every row ends, and once only."""

from dataclasses import dataclass
from typing import cast

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from service.engine.batcher import Limits, Pick
from service.engine.queue import AHEAD, RowQueue
from service.engine.request import Row
from service.errors import TooManyRequests, Unavailable

CAPACITY = 60
CALLERS = ["a", "b", "c", "heavy", "light"]
WEIGHTS = {"heavy": 3.0, "light": 0.5}


@dataclass(eq=False, slots=True)
class Fake:
    """All that the queue has to know of a row, and what has become of it."""

    caller: str
    tokens: int
    slots: int
    deadline: float
    cancelled: bool = False
    ends: int = 0


class QueueMachine(RuleBasedStateMachine):
    """Clients that come, leave and give up; a model that takes; a batch taken ahead."""

    padding_free = False

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.limits = Limits(max_rows=4, max_tokens=120, window=16, padding_free=self.padding_free)
        self.queue = RowQueue(CAPACITY, self.limits, weights=WEIGHTS, clock=lambda: self.now)
        self.rows: list[Fake] = []
        self.reserved: list[tuple[str, int]] = []

    @property
    def waiting(self) -> list[Fake]:
        return [row for row in self.rows if not row.ends]

    @rule(caller=st.sampled_from(CALLERS), rows=st.integers(1, 6))
    def come(self, caller: str, rows: int) -> None:
        held = sum(row.caller == caller for row in self.waiting) + sum(
            count for name, count in self.reserved if name == caller
        )
        free = CAPACITY - len(self.waiting) - sum(count for _, count in self.reserved)
        try:
            self.queue.reserve(rows, caller)
        except Unavailable:
            assert rows > free
        except TooManyRequests:
            assert rows <= free
            assert held
        else:
            assert rows <= free
            self.reserved.append((caller, rows))

    @precondition(lambda self: self.reserved)
    @rule(
        data=st.data(),
        shapes=st.lists(
            st.tuples(st.sampled_from([2, 3, 5, 8, 9, 20, 60, 200]), st.sampled_from([1, 1, 2])),
            min_size=6,
            max_size=6,
        ),
        patience=st.sampled_from([1.0, 5.0, 1000.0, 1000.0]),
    )
    def tokenised(
        self, data: st.DataObject, shapes: list[tuple[int, int]], patience: float
    ) -> None:
        caller, count = self.reserved.pop(data.draw(st.integers(0, len(self.reserved) - 1)))
        rows = [Fake(caller, *shape, self.now + patience) for shape in shapes[:count]]
        self.queue.put(cast("list[Row]", rows))
        self.rows += rows

    @precondition(lambda self: self.reserved)
    @rule()
    def refused(self) -> None:
        caller, count = self.reserved.pop()
        self.queue.release(count, caller)

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        """A client goes away; some of its rows may have been taken."""
        if not self.rows:
            return
        rows = data.draw(st.lists(st.sampled_from(self.rows[-30:]), unique=True, max_size=4))
        for row in rows:
            row.cancelled = True
        found = self.queue.withdraw(cast("list[Row]", rows))
        assert cast("list[Fake]", found) == [row for row in rows if not row.ends]
        for row in cast("list[Fake]", found):
            row.ends += 1

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def mark(self, data: st.DataObject) -> None:
        """A client has gone, and its rows are still to be withdrawn."""
        data.draw(st.sampled_from(self.waiting)).cancelled = True

    @rule(seconds=st.sampled_from([0.5, 2.0]))
    def later(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.waiting or self.queue.ahead)
    @rule()
    def run(self) -> None:
        ahead = self.queue.ahead
        picked = self.queue.take()
        assert picked is not None
        assert (picked is AHEAD) == ahead
        self.end(picked)

    @precondition(lambda self: self.queue.may_go_ahead())
    @rule()
    def prepare(self) -> None:
        picked = self.queue.take_ahead()
        assert picked is not None
        self.end(picked)

    def end(self, picked: Pick[Row]) -> None:
        batch, cancelled, expired = (
            cast("tuple[Fake, ...]", rows)
            for rows in (picked.batch, picked.cancelled, picked.expired)
        )
        for row in batch:
            assert not row.cancelled
            assert row.deadline > self.now
        assert all(row.cancelled for row in cancelled)
        assert all(row.deadline <= self.now for row in expired)
        for row in (*batch, *cancelled, *expired):
            row.ends += 1

    @invariant()
    def every_place_is_accounted_for(self) -> None:
        waiting = self.waiting
        assert len(self.queue) == len(waiting)
        assert all(row.ends <= 1 for row in self.rows)
        assert self.queue.waiting.positions == sum(row.tokens + row.slots for row in waiting)
        assert self.queue.reserved == sum(count for _, count in self.reserved)
        held: dict[str, int] = {}
        for caller, count in self.reserved:
            held[caller] = held.get(caller, 0) + count
        for row in waiting:
            held[row.caller] = held.get(row.caller, 0) + 1
        assert self.queue.held == held
        turns = [turn for turn, _ in self.queue.waiting.turns]
        assert turns == sorted(turns)
        assert {line.caller for _, line in self.queue.waiting.turns} == {
            row.caller for row in waiting
        }

    def teardown(self) -> None:
        while self.reserved:
            self.refused()
        picks = 0
        while self.waiting or self.queue.ahead:
            self.run()
            picks += 1
        assert picks <= len(self.rows) + 1
        assert (self.queue.held, self.queue.reserved, len(self.queue)) == ({}, 0, 0)
        self.queue.close()
        assert self.queue.take() is None
        assert self.queue.take_ahead() is None


class PaddingFreeMachine(QueueMachine):
    padding_free = True


schedules = settings(max_examples=40, stateful_step_count=50, deadline=None)
TestQueue = QueueMachine.TestCase
TestQueue.settings = schedules
TestPaddingFreeQueue = PaddingFreeMachine.TestCase
TestPaddingFreeQueue.settings = schedules
