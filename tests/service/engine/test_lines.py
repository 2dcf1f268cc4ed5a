from dataclasses import dataclass
from itertools import islice
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from service.engine.batcher import Limits, pick, size
from service.engine.lines import FORGET, Lines

LIMITS = Limits(max_rows=8, max_tokens=200)
LEAD = 4.0 * LIMITS.max_tokens


@dataclass(eq=False, slots=True)
class Fake:
    """A waiting row; `number` tells rows apart in messages."""

    number: int
    caller: str
    tokens: int
    slots: int = 1
    deadline: float = 1.0
    cancelled: bool = False


class Desk:
    """Rows of callers, and what each was served."""

    def __init__(self, weights: dict[str, float] | None = None, limits: Limits = LIMITS) -> None:
        self.limits = limits
        self.lines: Lines[Fake] = Lines(weights or {}, 4.0 * limits.max_tokens)
        self.served: dict[str, int] = {}
        self.number = 0

    def put(self, caller: str, *tokens: int) -> list[Fake]:
        rows = []
        for count in tokens:
            self.number += 1
            rows.append(Fake(self.number, caller, count))
            self.lines.add(rows[-1])
        return rows

    def take(self) -> tuple[Fake, ...]:
        batch = pick(self.lines.due(), 0.0, self.limits).batch
        self.lines.serve(batch)
        for row in batch:
            self.served[row.caller] = self.served.get(row.caller, 0) + size(row)
        return batch

    def order(self) -> str:
        return "".join(row.caller for row in self.lines.due())


class TestOrder:
    def test_one_caller_is_served_in_the_order_of_arrival(self):
        desk = Desk()
        rows = desk.put("a", 5, 90, 7, 5)
        assert list(desk.lines.due()) == rows

    def test_callers_take_turns_whoever_came_first(self):
        desk = Desk()
        desk.put("a", *[9] * 4)
        desk.put("b", *[9] * 2)
        desk.put("c", 9)
        assert desk.order() == "abcabaa"

    def test_long_texts_are_fewer_turns(self):
        desk = Desk()
        desk.put("a", *[29] * 3)
        desk.put("b", *[9] * 8)
        assert desk.order() == "abbbabbbabb"

    def test_a_weight_is_a_multiple_of_the_share(self):
        desk = Desk({"b": 3.0})
        desk.put("a", *[9] * 3)
        desk.put("b", *[9] * 8)
        assert desk.order() == "abbbabbbabb"

    def test_slots_are_positions_too(self):
        desk = Desk()
        desk.put("b", *[9] * 4)
        for number in range(2):
            desk.lines.add(Fake(number, "a", tokens=9, slots=11))
        assert desk.order() == "babbab"

    def test_the_order_goes_on_where_it_was(self):
        desk = Desk(limits=Limits(max_rows=1, max_tokens=200))
        desk.put("a", *[9] * 9)
        desk.put("b", *[9] * 9)
        desk.put("c", *[9] * 9)
        assert "".join(desk.take()[0].caller for _ in range(8)) == "abcabcab"


class TestAccounts:
    def test_nobody_saves_up_turns_while_away(self):
        desk = Desk(limits=Limits(max_rows=1, max_tokens=200))
        desk.put("a", *[9] * 50)
        desk.put("b", *[9] * 50)
        for _ in range(40):
            desk.take()
        desk.put("c", *[9] * 3)
        assert sorted(desk.order()[:3]) == ["a", "b", "c"]

    def test_a_caller_that_comes_back_still_owes_what_it_had_in_advance(self):
        desk = Desk()
        (long,) = desk.put("a", 190)
        desk.put("b", 9)
        desk.lines.serve([long])
        assert desk.order() == "b"
        desk.put("a", 9)
        desk.put("b", *[9] * 25)
        assert desk.order().index("a") == 20

    def test_withdrawn_rows_cost_nothing(self):
        desk = Desk()
        rows = desk.put("a", *[190] * 5)
        desk.put("b", 9)
        desk.lines.remove(rows)
        desk.put("a", 9)
        assert desk.order() == "ba"
        assert (len(desk.lines), desk.lines.positions) == (2, 20)

    def test_when_nobody_waits_everybody_is_even_again(self):
        desk = Desk()
        desk.put("a", 190)
        desk.take()
        assert not desk.lines.away
        desk.put("a", 9)
        desk.put("b", 9)
        assert desk.order() == "ab"

    def test_callers_that_are_long_gone_are_forgotten(self):
        desk = Desk(limits=Limits(max_rows=1, max_tokens=200, window=4))
        desk.put("always", *[9] * 40_000)
        for number in range(10_000):
            desk.put(f"caller {number}", 9)
            desk.take()
            desk.take()
        assert len(desk.lines.away) <= 2 * FORGET
        assert len(desk.lines.lines) <= 2

    def test_rows_know_whether_they_wait(self):
        desk = Desk()
        (row,) = desk.put("a", 9)
        assert row in desk.lines
        desk.take()
        assert row not in desk.lines
        desk.put("a", 9)
        assert row not in desk.lines


class TestLead:
    def test_it_alone_may_have_everything(self):
        desk = Desk()
        desk.put("a", *[9] * 1000)
        assert len(list(islice(desk.lines.due(), 600))) == 600
        while desk.take():
            pass
        assert desk.served == {"a": 10_000}


class TestFairness:
    @settings(max_examples=40, deadline=None)
    @given(
        weights=st.lists(st.sampled_from([0.5, 1.0, 1.0, 2.0, 4.0]), min_size=2, max_size=6),
        seed=st.integers(0, 2**32),
        padding_free=st.booleans(),
    )
    def test_no_caller_that_waits_all_the_time_falls_behind(self, weights, seed, padding_free):
        """The bound: what two get, by their weights, differs by the lead and one batch at most."""
        limits = Limits(max_rows=8, max_tokens=200, padding_free=padding_free)
        shares = {str(number): weight for number, weight in enumerate(weights)}
        desk, random = Desk(shares, limits), Random(seed)
        habits = {caller: random.choice([(3, 8), (3, 60), (150, 190)]) for caller in shares}
        for _ in range(150):
            for caller, habit in habits.items():
                while len(getattr(desk.lines.lines.get(caller), "rows", ())) < 12:
                    desk.put(caller, random.randint(*habit))
            assert desk.take()
            spent = [desk.served.get(caller, 0) / weight for caller, weight in shares.items()]
            assert max(spent) - min(spent) <= LEAD + limits.max_tokens / min(weights)

    @settings(max_examples=30, deadline=None)
    @given(
        others=st.integers(1, 40),
        flood=st.integers(1, 200),
        seed=st.integers(0, 2**32),
        padding_free=st.booleans(),
    )
    def test_who_comes_is_served_within_as_many_batches_as_there_are_callers(
        self, others, flood, seed, padding_free
    ):
        random = Random(seed)
        desk = Desk(limits=Limits(max_rows=8, max_tokens=200, padding_free=padding_free))
        for number in range(others):
            desk.put(str(number), *(random.randint(3, 190) for _ in range(flood)))
        for _ in range(random.randint(0, 2 * others)):
            desk.take()
        (row,) = desk.put("light", random.randint(3, 190))
        callers = len(desk.lines.lines)
        assert any(row in desk.take() for _ in range(callers))

    @settings(max_examples=30, deadline=None)
    @given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 190)), max_size=60))
    def test_every_row_is_served_once_and_nothing_stays(self, arrivals):
        desk = Desk()
        rows = [row for caller, tokens in arrivals for row in desk.put(caller, tokens)]
        served: list[Fake] = []
        while batch := desk.take():
            served += batch
        assert sorted(row.number for row in served) == [row.number for row in rows]
        assert (len(desk.lines), desk.lines.positions) == (0, 0)
        assert not desk.lines.lines
        assert not desk.lines.turns


class Looked(Fake):
    """Counts how often it was looked at."""

    looks = 0

    @property
    def cancelled(self) -> bool:
        type(self).looks += 1
        return False

    @cancelled.setter
    def cancelled(self, value: bool) -> None:
        pass


@pytest.mark.parametrize("callers", [1, 5000])
def test_a_pick_looks_at_the_window_only_however_many_wait(callers):
    limits = Limits(max_rows=32, max_tokens=2048, window=512)
    lines: Lines[Fake] = Lines({}, 4.0 * limits.max_tokens)
    for number in range(100_000):
        lines.add(Looked(number, str(number % callers), tokens=3 + number * 7919 % 60))
    Looked.looks = 0
    picks = 50
    for _ in range(picks):
        lines.serve(pick(lines.due(), 0.0, limits).batch)
    assert Looked.looks == picks * limits.window
