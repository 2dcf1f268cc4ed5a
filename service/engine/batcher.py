"""Which of the waiting rows run next: pure policy, without clock, lock or thread.

The oldest row that is still wanted is the anchor: it is always in the batch, so no row waits
longer than one batch for each row that was ahead of it. Rows of about its size join it, nearest
first, while the budget of padded tokens, the row limit and the bound on padding allow.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar


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
        max_tokens: most positions computed, padding and capsule slots included.
        max_padding: most positions computed per real one...
        free_padding: ...unless no more than this many are padding, since on few tokens a pass of
            its own costs more than padding does.
        window: how many rows, from the oldest, are looked at for neighbours; bounds the time that
            a pick takes.
    """

    max_rows: int
    max_tokens: int
    max_padding: float = 1.1
    free_padding: int = 32
    window: int = 512


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


def pick(waiting: Iterable[T], now: float, limits: Limits) -> Pick[T]:
    """Choose the next batch.

    Args:
        waiting: rows in the order in which they are to be served, oldest first.
        now: the present time.
        limits: bounds on the batch.
    """
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
            if len(live) == limits.window:
                break
    batch = neighbours(live, limits) if live else []
    return Pick(batch=tuple(batch), cancelled=tuple(cancelled), expired=tuple(expired))


def neighbours(live: Sequence[T], limits: Limits) -> list[T]:
    """The first row, and those of about its size that fit in with it.

    Rows of the same shape join in their order: once one does not fit, its likes are passed over,
    even where a batch that has grown since would take them.
    """
    sizes = [row.tokens + row.slots for row in live]
    size = sizes[0]
    batch, real, tokens, slots = [live[0]], size, live[0].tokens, live[0].slots
    refused: set[tuple[int, int]] = set()
    for index in sorted(range(1, len(live)), key=lambda index: abs(sizes[index] - size)):
        row = live[index]
        shape = (row.tokens, row.slots)
        if shape in refused:
            continue
        width = max(tokens, row.tokens) + max(slots, row.slots)
        if fits(len(batch) + 1, width, real + sizes[index], limits):
            batch.append(row)
            real += sizes[index]
            tokens, slots = max(tokens, row.tokens), max(slots, row.slots)
            if len(batch) == limits.max_rows:
                break
        else:
            refused.add(shape)
    return batch


def fits(rows: int, width: int, real: int, limits: Limits) -> bool:
    """Whether `rows` rows of `width` positions each, `real` of them real, may be computed."""
    computed = rows * width
    return (
        rows <= limits.max_rows
        and computed <= limits.max_tokens
        and computed <= max(real * limits.max_padding, real + limits.free_padding)
    )
