"""Slots, and the jobs of workers that are lost, in SQL."""

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.jobs.records import Claim, Slot
from service.jobs.sentences import goes_on
from service.jobs.slots import holder, in_order, new_name, orphaned, slot_record, vacant
from service.jobs.tables import JobRow, SlotRow
from service.jobs.transitions import give_back, last_epoch, lose, tell
from service.store.sql import SqlStore


class SqlSlots:
    """The workers' part of `Ledger` that is about their slots.

    Attributes:
        store: whose database the jobs are in.
    """

    store: SqlStore

    def slots(self) -> list[Slot]:
        """See `Ledger.slots`."""
        with self.store.reading() as session:
            return [slot_record(row) for row in in_order(session.scalars(select(SlotRow)))]

    def take_slot(self, token: str, host: str, pid: int, free: Collection[str]) -> Slot:
        """See `Ledger.take_slot`."""
        with self.store.writing() as session:
            slots = in_order(session.scalars(select(SlotRow)))
            row = vacant(slots, token, free)
            if row is None:
                row = SlotRow(name=new_name(slots))
                session.add(row)
            at = self.store.now()
            row.token, row.host, row.pid = token, host, pid
            row.taken_at = row.seen_at = at
            row.released = False
            return slot_record(row)

    def beat(self, token: str, active: Collection[Claim]) -> bool:
        """See `Ledger.beat`."""
        with self.store.writing() as session:
            slot = holder(session, token)
            if slot is None:
                return False
            at = self.store.now()
            slot.seen_at = at
            working = {(claim.job, claim.run) for claim in active if claim.token == token}
            for row in running(session):
                if row.token == token and (row.id, row.run) not in working:
                    lose(session, row, at)
            return True

    def release_slot(self, token: str) -> None:
        """See `Ledger.release_slot`."""
        with self.store.writing() as session:
            slot = holder(session, token)
            if slot is None:
                return
            slot.released = True
            at = self.store.now()
            for row in running(session):
                if row.token == token:
                    give_back(row)
                    tell(
                        session,
                        row,
                        at,
                        f"{slot.name} was stopped; the job is queued again and "
                        f"{goes_on(last_epoch(session, row.id))}.",
                        {"run": row.run},
                    )

    def recover(self, before: datetime) -> list[str]:
        """See `Ledger.recover`."""
        with self.store.reading() as session:
            # Most calls find nothing, and need not wait for the writers.
            if not lost(session, before):
                return []
        with self.store.writing() as session:
            at = self.store.now()
            rows = lost(session, before)
            for row in rows:
                lose(session, row, at)
            return [row.id for row in rows]


def running(session: Session) -> list[JobRow]:
    """Return the running jobs, in the order of the queue they came from."""
    return list(
        session.scalars(select(JobRow).where(JobRow.status == "running").order_by(JobRow.turn))
    )


def lost(session: Session, before: datetime) -> list[JobRow]:
    """Return the running jobs that nobody works on."""
    slots = {row.name: row for row in session.scalars(select(SlotRow))}
    return [row for row in running(session) if orphaned(row, slots, before)]
