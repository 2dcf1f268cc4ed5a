"""Whose turn it is: fair queueing between callers, counted in positions; pure policy.

Every caller has an account of the positions that it was served, divided by its weight. The caller
with the lowest account is due: its oldest row is the next anchor. What a caller gets as neighbours
of other callers' rows goes on its account as well, and one that is further ahead than `lead` gets
no more until the others have caught up. So of two callers that both have rows waiting all the time
neither gets more than its share by more than `lead` and one batch.

Who comes, or comes back, starts level with the lowest account that waits: nobody saves up turns
while away, and nobody loses the debt of turns taken in advance by staying away for a moment.
"""

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush, heapreplace
from typing import Generic, Protocol, TypeVar

from service.engine.batcher import Waiting, size

FORGET = 1024
"""So many accounts of callers without rows are kept before it is looked which of them matter."""


class Called(Waiting, Protocol):
    """A waiting row that knows whose it is; told apart from others by identity."""

    @property
    def caller(self) -> str:
        """Opaque key of its caller."""
        ...


R = TypeVar("R", bound=Called)
Turn = tuple[float, int]
"""A caller's account, and for equal accounts who came first."""


@dataclass(slots=True, eq=False)
class Line(Generic[R]):
    """The rows of one caller, in the order of their arrival.

    Attributes:
        caller: whose they are.
        weight: its share, as a multiple of that of others.
        turn: its place among the lines.
        rows: a set that keeps order; leaving from the front costs no more than from elsewhere.
    """

    caller: str
    weight: float
    turn: Turn
    rows: OrderedDict[R, None] = field(default_factory=OrderedDict)


class Lines(Generic[R]):
    """The waiting rows of all callers.

    Attributes:
        lead: how far one caller may be ahead of another that waits.
        positions: of all waiting rows.
    """

    def __init__(self, weights: Mapping[str, float], lead: float) -> None:
        """Start empty.

        Args:
            weights: shares of some callers, above 0; all others have 1.
            lead: positions that a caller of weight 1 may have in advance.
        """
        self.weights = weights
        self.lead = lead
        self.positions = 0
        self.count = 0
        self.lines: dict[str, Line[R]] = {}
        self.turns: list[tuple[Turn, Line[R]]] = []
        self.serial = 0
        # Nobody who waits has a lower account.
        self.floor = 0.0
        self.away: dict[str, float] = {}
        self.forget_at = FORGET

    def __len__(self) -> int:
        return self.count

    def __contains__(self, row: R) -> bool:
        line = self.lines.get(row.caller)
        return line is not None and row in line.rows

    def add(self, row: R) -> None:
        """Put a row at the end of its caller's line."""
        line = self.lines.get(row.caller)
        if line is None:
            account = max(self.floor, self.away.pop(row.caller, self.floor))
            weight = self.weights.get(row.caller, 1.0)
            line = self.lines[row.caller] = Line(row.caller, weight, (account, 0))
            self.enter(line, account)
        line.rows[row] = None
        self.count += 1
        self.positions += size(row)

    def remove(self, rows: Iterable[R]) -> None:
        """Take rows out that nobody wants any more; they cost their callers nothing."""
        self.take(rows, served=False)

    def serve(self, rows: Iterable[R]) -> None:
        """Take rows out that are going to run, on their callers' accounts."""
        self.take(rows, served=True)

    def take(self, rows: Iterable[R], *, served: bool) -> None:
        """:meth:`remove` or :meth:`serve`."""
        spent: dict[Line[R], int] = {}
        for row in rows:
            line = self.lines[row.caller]
            del line.rows[row]
            self.count -= 1
            self.positions -= size(row)
            spent[line] = spent.get(line, 0) + (size(row) if served else 0)
        for line, positions in spent.items():
            if positions or not line.rows:
                self.leave(line)
                account = line.turn[0] + positions / line.weight
                if line.rows:
                    self.enter(line, account)
                else:
                    del self.lines[line.caller]
                    self.away[line.caller] = account
        self.settle()

    def enter(self, line: Line[R], account: float) -> None:
        """Put a line into its place, behind all others of the same account."""
        self.serial += 1
        line.turn = (account, self.serial)
        insort(self.turns, (line.turn, line), key=turn_of)

    def leave(self, line: Line[R]) -> None:
        """Take a line out of its place."""
        del self.turns[bisect_left(self.turns, line.turn, key=turn_of)]

    def settle(self) -> None:
        """Note how far the lowest account has come, and forget those that do not matter."""
        if not self.turns:
            # Whoever comes next competes with nobody who was kept waiting.
            self.floor = 0.0
            self.away.clear()
            return
        self.floor = self.turns[0][0][0]
        if len(self.away) >= self.forget_at:
            self.away = {
                caller: account for caller, account in self.away.items() if account > self.floor
            }
            # Twice what is left, so that looking costs little for each caller that goes.
            self.forget_at = FORGET + 2 * len(self.away)

    def due(self) -> Iterator[R]:
        """The rows in the order in which they are due; nothing may change meanwhile.

        Each caller's rows are in the order of their arrival, and callers take turns as if every
        row was served when it comes up. Callers that are too far ahead are left out. To get the
        first n rows takes a time of order n log n, however many wait.
        """
        entering = iter(self.turns)
        turn, line = next(entering, (None, None))
        furthest = self.floor + self.lead
        merged: list[tuple[float, int, R, Iterator[R], float]] = []
        while True:
            while turn is not None and turn[0] <= furthest and (not merged or turn < merged[0][:2]):
                assert line is not None, "every turn is a line's"
                rows = iter(line.rows)
                heappush(merged, (*turn, next(rows), rows, line.weight))
                turn, line = next(entering, (None, None))
            if not merged:
                return
            account, serial, row, rows, weight = merged[0]
            yield row
            following = next(rows, None)
            if following is None:
                heappop(merged)
            else:
                account += size(row) / weight
                heapreplace(merged, (account, serial, following, rows, weight))


def turn_of(entry: tuple[Turn, Line[R]]) -> Turn:
    """What lines are sorted by."""
    return entry[0]
