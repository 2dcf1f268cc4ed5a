"""Slots: who holds one, which to take, and which jobs have lost their worker."""

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.jobs.records import Slot
from service.jobs.tables import JobRow, SlotRow
from service.store.models import told

STALE = timedelta(seconds=20)
"""Whoever has not been heard of for so long has lost its slot and its jobs."""


def stale_before(now: datetime) -> datetime:
    """The moment since which a living process has been heard of."""
    return now - STALE


def holder(session: Session, token: str) -> SlotRow | None:
    """Return the slot that a process holds, or None where it has none any more."""
    row = session.scalar(select(SlotRow).where(SlotRow.token == token))
    return None if row is None or row.released else row


def in_order(slots: Iterable[SlotRow]) -> list[SlotRow]:
    """Sort slots by the number in their names."""
    return sorted(slots, key=lambda row: (len(row.name), row.name))


def vacant(slots: Collection[SlotRow], token: str, free: Collection[str]) -> SlotRow | None:
    """Choose a slot for a process.

    That of a dead process comes before one that was given back, as there may be jobs to go on with.

    Args:
        slots: Those there are, in order.
        token: Of the process; the slot it holds is its own already.
        free: Tokens of processes that are dead.
    """
    own = [row for row in slots if row.token == token]
    dead = [row for row in slots if row.token in free and not row.released]
    returned = [row for row in slots if row.released]
    return next(iter((*own, *dead, *returned)), None)


def new_name(slots: Collection[SlotRow]) -> str:
    """Return a name that no slot has."""
    taken = {row.name for row in slots}
    return next(
        name for number in range(1, len(taken) + 2) if (name := f"worker-{number}") not in taken
    )


def orphaned(job: JobRow, slots: dict[str, SlotRow], before: datetime) -> bool:
    """Whether nobody works on a running job.

    Its worker has not been heard of since `before`; or another process has taken the slot, and has
    had as long to go on with the job.

    Args:
        job: A running job.
        slots: All of them, by name.
        before: The moment.
    """
    slot = slots.get(job.worker or "")
    if slot is None or slot.released:
        return True
    return told(slot.seen_at if slot.token == job.token else slot.taken_at) < before


def slot_record(row: SlotRow) -> Slot:
    """Return a slot as callers see it."""
    return Slot(
        name=row.name,
        token=row.token,
        host=row.host,
        pid=row.pid,
        seen_at=told(row.seen_at),
        released=bool(row.released),
    )
