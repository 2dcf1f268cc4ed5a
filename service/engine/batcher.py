"""Which of the waiting rows run next: pure policy, without clock, lock or thread.

The first row that is still wanted is the anchor: it is always in the batch, so no row waits longer
than one batch for each row that was ahead of it. Others join it while the budget, the row limit
and the bound on waste allow: those of about its size first where padding is computed, and in their
order where it is not.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

GAP = 16
"""Where padding is free, a batch is full that lacks no more than this part of its positions."""


class Waiting(Protocol):
    """What the policy has to know of a row."""

    @property
    def tokens(self) -> int:
        """Tokens of its text."""
        ...

    @property
    def slots(self) -> int:
        """Positions that its capsule takes."""
        ...

    @property
    def deadline(self) -> float:
        """When its answer is of no use any more, on the clock that `now` is taken from."""
        ...

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for its answer."""
        ...


T = TypeVar("T", bound=Waiting)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one batch; a row that is over a bound by itself runs alone.

    Attributes:
        max_rows: most rows.
        max_tokens: most positions computed, capsule slots included, and padding where it is
            computed.
        max_padding: most work done per work needed...
        free_padding: ...unless no more than the work of this many positions is wasted, since on
            few of them a pass of its own costs more than that.
        window: how many rows, from the first, are looked at for neighbours; bounds the time that
            a pick takes.
        padding_free: whether only real positions are computed. Then only attention wastes work.
        attention_cost: where padding is free: what a position pays for each one that it attends
            to, as a part of all that it costs besides.
    """

    max_rows: int
    max_tokens: int
    max_padding: float = 1.1
    free_padding: int = 32
    window: int = 512
    padding_free: bool = False
    attention_cost: float = 1 / 1024


@dataclass(frozen=True, slots=True)
class Pick(Generic[T]):
    """What one look at the queue decided; every other row goes on waiting.

    Attributes:
        batch: rows to run together, the anchor first; empty where no live row waits.
        cancelled: rows to drop, since nobody waits for them.
        expired: rows to drop, since their deadline has passed.
    """

    batch: tuple[T, ...]
    cancelled: tuple[T, ...]
    expired: tuple[T, ...]


def size(row: Waiting) -> int:
    """Positions that a row takes in the sequence."""
    return row.tokens + row.slots


def pick(waiting: Iterable[T], now: float, limits: Limits) -> Pick[T]:
    """Choose the next batch.

    Args:
        waiting: rows in the order in which they are due, the first one first.
        now: the present time.
        limits: bounds on the batch.
    """
    batch: Batch[T] = Batch(limits)
    live: list[T] = []
    cancelled: list[T] = []
    expired: list[T] = []
    for row in waiting:
        if row.cancelled:
            cancelled.append(row)
        elif row.deadline <= now:
            expired.append(row)
        else:
            live.append(row)
            if limits.padding_free:
                batch.offer(row)
            if len(live) == limits.window or batch.full:
                break
    if not limits.padding_free:
        # Those of the same size in their order.
        for row in sorted(live, key=lambda row: abs(size(row) - size(live[0]))):
            batch.offer(row)
            if batch.full:
                break
    return Pick(batch=tuple(batch.rows), cancelled=tuple(cancelled), expired=tuple(expired))


class Batch(Generic[T]):
    """A batch that rows are offered to; the first one is taken, whatever it is.

    Rows of the same shape join in their order: once one does not fit, its likes are passed over,
    even where a batch that has grown since would take them.

    Attributes:
        rows: that were taken.
        full: whether there is hardly room for more.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.rows: list[T] = []
        self.extent = Extent()
        self.refused: set[tuple[int, int]] = set()
        self.full = False
        # To look for the row that fills the last gap takes longer than the gap is worth.
        self.enough = limits.max_tokens
        if limits.padding_free:
            self.enough -= limits.max_tokens // GAP

    def offer(self, row: T) -> None:
        """Take a row if it fits."""
        shape = (row.tokens, row.slots)
        if shape in self.refused:
            return
        extent = self.extent.and_one(row)
        if self.rows and not extent.fits(self.limits):
            self.refused.add(shape)
            return
        self.rows.append(row)
        self.extent = extent
        self.full = extent.rows == self.limits.max_rows or extent.real >= self.enough


class Extent(NamedTuple):
    """How large a batch is, and what it costs in positions.

    Attributes:
        rows: how many.
        real: their positions.
        squares: their positions squared, in sum.
        tokens: of the longest text.
        slots: of the longest capsule.
        longest: positions of the longest row.
    """

    rows: int = 0
    real: int = 0
    squares: int = 0
    tokens: int = 0
    slots: int = 0
    longest: int = 0

    def and_one(self, row: Waiting) -> "Extent":
        """With one row more."""
        positions = size(row)
        return Extent(
            self.rows + 1,
            self.real + positions,
            self.squares + positions * positions,
            max(self.tokens, row.tokens),
            max(self.slots, row.slots),
            max(self.longest, positions),
        )

    def computed(self, limits: Limits) -> int:
        """Positions that go through the linear layers."""
        return self.real if limits.padding_free else self.rows * (self.tokens + self.slots)

    def fits(self, limits: Limits) -> bool:
        """Whether it may be run.

        With padding, the work done is rows times width, and the work needed the real positions.
        Without it, with n rows of s positions each, the longest of w, and attention cost a:

            needed = sum(s) + a sum(s^2)        done = sum(s) + a n w^2
        """
        if self.rows > limits.max_rows or self.computed(limits) > limits.max_tokens:
            return False
        if limits.padding_free:
            needed = self.real + limits.attention_cost * self.squares
            done = self.real + limits.attention_cost * self.rows * self.longest**2
        else:
            needed, done = float(self.real), float(self.computed(limits))
        return done <= max(needed * limits.max_padding, needed + limits.free_padding)
