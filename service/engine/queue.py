"""Rows on their way to the model: bounded, and emptied by the model thread a batch at a time."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import chain

from service.engine.batcher import Limits, Pick, pick
from service.engine.request import Row
from service.errors import Unavailable

RETRY_FULL_S = 1
RETRY_STOPPED_S = 5


def stopped() -> Unavailable:
    """The error for rows that no model thread will take."""
    return Unavailable(
        "The engine has stopped; send the request again, to another server if there is one.",
        code="engine_stopped",
        retry_after=RETRY_STOPPED_S,
    )


class RowQueue:
    """Rows in the order of their arrival.

    Places are reserved before a request's rows are tokenised, so that a full queue refuses it
    before any work is done, and as a whole. Rows can be withdrawn, which frees their places at
    once. The event loops fill it and one model thread takes from it.
    """

    def __init__(
        self, capacity: int, limits: Limits, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Start empty and open.

        Args:
            capacity: most rows, reserved places included.
            limits: bounds on the batches taken.
            clock: what the rows' deadlines are told by.
        """
        self.capacity = capacity
        self.limits = limits
        self.clock = clock
        self.changed = threading.Condition()
        self.waiting: dict[Row, None] = {}  # a set that keeps order and removes from anywhere
        self.reserved = 0
        self.closed = False
        self.broken = False

    def __len__(self) -> int:
        return len(self.waiting)

    def reserve(self, rows: int) -> None:
        """Take places for the rows of one request, all or none.

        Raises:
            Unavailable: `queue_full`, or `engine_stopped` once the queue is closed.
        """
        with self.changed:
            if self.closed:
                raise stopped()
            if len(self.waiting) + self.reserved + rows > self.capacity:
                raise Unavailable(
                    f"The queue has no room for {rows} more row(s); send the request again later.",
                    code="queue_full",
                    retry_after=RETRY_FULL_S,
                )
            self.reserved += rows

    def release(self, rows: int) -> None:
        """Give reserved places back."""
        with self.changed:
            self.reserved -= rows
            self.notice_end()

    def put(self, rows: Sequence[Row]) -> None:
        """Put rows into places that were reserved for them.

        Raises:
            Unavailable: `engine_stopped`; the places are still reserved.
        """
        with self.changed:
            if self.broken:
                raise stopped()
            self.reserved -= len(rows)
            self.waiting.update(dict.fromkeys(rows))
            self.changed.notify()

    def withdraw(self, rows: Iterable[Row]) -> list[Row]:
        """Take rows out, and say which of them were still waiting."""
        with self.changed:
            found = [row for row in rows if row in self.waiting]
            for row in found:
                del self.waiting[row]
            self.notice_end()
        return found

    def notice_end(self) -> None:
        """Wake the model thread if this was what a closed queue waited for; the lock is held."""
        if self.closed:
            self.changed.notify()

    def take(self) -> Pick[Row] | None:
        """Wait for rows and take the next batch, with the rows to be dropped; at once if any waits.

        Returns:
            None once the queue is closed and every row has gone, or it is broken.
        """
        with self.changed:
            while not self.waiting and not self.broken and not (self.closed and not self.reserved):
                self.changed.wait()
            if self.broken or not self.waiting:
                return None
            picked = pick(self.waiting, self.clock(), self.limits)
            for row in chain(picked.batch, picked.cancelled, picked.expired):
                del self.waiting[row]
            return picked

    def close(self) -> None:
        """Refuse new requests; those that have reserved places go on."""
        with self.changed:
            self.closed = True
            self.changed.notify()

    def shut(self) -> None:
        """Refuse all rows; those that wait stay until their requests withdraw them."""
        with self.changed:
            self.closed = self.broken = True
            self.changed.notify()
