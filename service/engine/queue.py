"""Rows on their way to the model: bounded, and emptied a batch at a time."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from types import MappingProxyType
from typing import Final

from service.engine.batcher import Limits, Pick, pick
from service.engine.lines import Lines
from service.engine.request import Row
from service.errors import ServiceError, TooManyRequests, Unavailable

RETRY_FULL_S = 1
RETRY_STOPPED_S = 5

SHARE = 4
"""Places that a caller of weight 1 may hold for each one that is free after it took its own. One
caller fills four fifths of an empty queue and two a bit less than half each, so that whoever comes
next always finds room."""

LEAD_BATCHES = 4
"""Full batches that one caller may be ahead of another that waits."""

EVEN: Final[Mapping[str, float]] = MappingProxyType({})

AHEAD: Final[Pick[Row]] = Pick((), (), ())
"""What :meth:`RowQueue.take` gives in place of a batch that was taken ahead."""


def stopped() -> Unavailable:
    """The error for rows that no model thread will take."""
    return Unavailable(
        "The engine has stopped; send the request again, to another server if there is one.",
        code="engine_stopped",
        retry_after=RETRY_STOPPED_S,
    )


@dataclass(frozen=True, slots=True)
class Share:
    """A batch for one of several threads.

    Attributes:
        picked: the batch, with the rows to be dropped.
        alone: whether nothing else runs, or will until it is done.
    """

    picked: Pick[Row]
    alone: bool


class RowQueue:
    """Rows of all callers, each caller's in the order of their arrival.

    Places are reserved before a request's rows are tokenised, so that a full queue refuses it
    before any work is done, and as a whole. Rows can be withdrawn, which frees their places at
    once.

    The event loops fill it. The model thread takes from it whenever it has nothing to run, and
    gets whatever waits. Another thread takes from it while the model runs, one batch ahead, and
    only once a full one waits: rows that come during the pass cannot join a batch any more that was
    taken before.
    """

    def __init__(
        self,
        capacity: int,
        limits: Limits,
        *,
        weights: Mapping[str, float] = EVEN,
        lanes: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start empty and open.

        Args:
            capacity: most rows, reserved places included.
            limits: bounds on the batches taken.
            weights: shares of some callers; all others have 1.
            lanes: threads that take shares at a time; one takes with :meth:`take`.
            clock: what the rows' deadlines are told by.
        """
        self.capacity = capacity
        self.limits = limits
        self.weights = weights
        self.clock = clock
        self.lock = threading.RLock()
        self.idle = threading.Condition(self.lock)  # the model thread waits for anything to do
        self.busy = threading.Condition(self.lock)  # the other one for a batch to take ahead
        self.waiting: Lines[Row] = Lines(weights, LEAD_BATCHES * limits.max_tokens)
        self.reserved = 0
        self.held: dict[str, int] = {}  # places by caller, reserved and waited in
        self.lanes = lanes
        self.sharing = 0
        self.sleepers: list[threading.Condition] = []  # threads that wait for a share
        self.alone = False
        self.running = False
        self.ahead = False
        self.closed = False
        self.broken = False

    def __len__(self) -> int:
        return len(self.waiting)

    def reserve(self, rows: int, caller: str = "") -> None:
        """Take places for the rows of one request, all or none.

        Raises:
            Unavailable: `queue_full`, or `engine_stopped` once the queue is closed.
            TooManyRequests: `caller_queue_full`: there is room, but this caller holds its share.
        """
        with self.lock:
            if self.closed:
                raise stopped()
            refusal = self.refusal(rows, caller)
            if refusal is not None:
                raise refusal
            self.reserved += rows
            self.held[caller] = self.held.get(caller, 0) + rows

    def refusal(self, rows: int, caller: str) -> ServiceError | None:
        """Why a request gets no places, or None; the lock is held.

        A caller that holds none may have any that are free, so that every request that fits into
        the queue is taken at some time.
        """
        left = self.capacity - len(self.waiting) - self.reserved - rows
        if left < 0:
            return Unavailable(
                f"The queue has no room for {rows} more row(s); send the request again later.",
                code="queue_full",
                retry_after=RETRY_FULL_S,
            )
        held = self.held.get(caller, 0)
        if held and held + rows > SHARE * self.weights.get(caller, 1.0) * left:
            return TooManyRequests(
                f"You have {held} row(s) under way, and {rows} more would leave too little room "
                "for others; send the request again once some are answered.",
                code="caller_queue_full",
                retry_after=RETRY_FULL_S,
            )
        return None

    def release(self, rows: int, caller: str = "") -> None:
        """Give reserved places back."""
        with self.lock:
            self.reserved -= rows
            self.vacate(caller, rows)
            self.notice_end()

    def vacate(self, caller: str, places: int) -> None:
        """Note that a caller holds fewer places; the lock is held."""
        left = self.held.get(caller, 0) - places
        assert left >= 0, "a caller gave back more places than it held"
        if left:
            self.held[caller] = left
        else:
            self.held.pop(caller, None)

    def put(self, rows: Sequence[Row]) -> None:
        """Put rows into places that were reserved for them.

        Raises:
            Unavailable: `engine_stopped`; the places are still reserved.
        """
        with self.lock:
            if self.broken:
                raise stopped()
            self.reserved -= len(rows)
            for row in rows:
                self.waiting.add(row)
            if self.lanes > 1:
                self.wake()
            elif not self.running:
                self.idle.notify()
            elif self.may_go_ahead():
                self.busy.notify()

    def withdraw(self, rows: Iterable[Row]) -> list[Row]:
        """Take rows out, and say which of them were still waiting."""
        with self.lock:
            found = [row for row in rows if row in self.waiting]
            self.waiting.remove(found)
            for row in found:
                self.vacate(row.caller, 1)
            self.notice_end()
        return found

    def notice_end(self) -> None:
        """Wake both takers if this was what a closed queue waited for; the lock is held."""
        if self.closed:
            self.idle.notify()
            self.busy.notify()
            while self.sleepers:
                self.wake()

    def wake(self) -> None:
        """Wake the thread that has waited shortest, whose caches are warmest; the lock is held."""
        if self.sleepers:
            self.sleepers.pop().notify()

    def take(self) -> Pick[Row] | None:
        """Wait for rows and take the next batch, with the rows to be dropped; at once if any waits.

        For the model thread, which has nothing to run when it calls, and is taken to run what it
        gets until it calls again.

        Returns:
            `AHEAD` where a batch was taken ahead, which is to run first; None once the queue is
            closed and every row has gone, or it is broken.
        """
        with self.lock:
            self.running = False
            while not self.ahead and not self.waiting and not self.ended:
                self.idle.wait()
            if self.broken or not (self.ahead or self.waiting):
                return None
            self.running = True
            if self.ahead:
                self.ahead = False
                picked = AHEAD
            else:
                picked = self.pick()
            if self.may_go_ahead():
                self.busy.notify()
            self.notice_end()
            return picked

    def take_share(self, done: Share | None) -> Share | None:
        """Wait for rows and take some; for each of several threads that run the model.

        What waits is divided between the threads that are free, so that none of them is left
        without while another has a long batch. A single row that finds all of them free has all
        cores to itself.

        Args:
            done: what the thread was given before, which it is done with.

        Returns:
            None once the queue is closed and every row has gone, or it is broken.
        """
        with self.lock:
            if done is not None:
                self.sharing -= 1
                if done.alone:
                    self.alone = False
            while not self.ended and (self.alone or not self.waiting):
                mine = threading.Condition(self.lock)
                self.sleepers.append(mine)
                mine.wait()
            if self.broken or not self.waiting:
                return None
            alone = self.sharing == 0 and len(self.waiting) == 1
            even = -(-self.waiting.positions // (self.lanes - self.sharing))
            tokens = min(even, self.limits.max_tokens)
            picked = self.pick(replace(self.limits, max_tokens=tokens))
            self.sharing += 1
            self.alone = alone
            if self.waiting:
                self.wake()
            self.notice_end()
            return Share(picked, alone)

    def take_ahead(self) -> Pick[Row] | None:
        """Wait until the model runs, none is ahead and a full batch waits, and take it.

        Returns:
            None once the queue is closed and every row has gone, or it is broken.
        """
        with self.lock:
            while not self.ended and not self.may_go_ahead():
                self.busy.wait()
            if self.ended:
                return None
            self.ahead = True
            return self.pick()

    @property
    def ended(self) -> bool:
        """Whether no more rows will be taken; the lock is held."""
        return self.broken or (self.closed and not self.reserved and not self.waiting)

    def may_go_ahead(self) -> bool:
        """Whether a batch may be taken ahead now; the lock is held."""
        return (
            self.running
            and not self.ahead
            and (
                len(self.waiting) >= self.limits.max_rows
                or self.waiting.positions >= self.limits.max_tokens
            )
        )

    def pick(self, limits: Limits | None = None) -> Pick[Row]:
        """Take the next batch out, within the queue's own limits or others; the lock is held."""
        picked = pick(self.waiting.due(), self.clock(), limits or self.limits)
        self.waiting.remove(chain(picked.cancelled, picked.expired))
        self.waiting.serve(picked.batch)
        for row in chain(picked.batch, picked.cancelled, picked.expired):
            self.vacate(row.caller, 1)
        return picked

    def close(self) -> None:
        """Refuse new requests; those that have reserved places go on."""
        with self.lock:
            self.closed = True
            self.notice_end()

    def shut(self) -> None:
        """Refuse all rows; those that wait stay until their requests withdraw them."""
        with self.lock:
            self.closed = self.broken = True
            self.notice_end()
