"""Any sequence of calls leaves the ledger where a plain model of it would be."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import ClassVar

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from sqlalchemy import select

from service.errors import Conflict, NotFound
from service.jobs.ledger import ClaimVoid, DefaultMoved
from service.jobs.records import ENDED, Claim, Idempotency, JobError, Progress, Status
from service.jobs.spec import JobSpec
from service.jobs.sql import SqlLedger
from service.jobs.tables import EventRow
from service.store.errors import TaskNotFound
from service.store.sqlite import SqliteStore
from tests.service.jobs.conftest import emptied
from tests.service.jobs.samples import FILES, METRICS, Clock, activation, new_version, report

STALE_S = 20
PROGRESS = Progress(1, 2, 3, 4, None, None)

EVENTS = select(EventRow.job, EventRow.number, EventRow.data).order_by(EventRow.number)

some = st.integers(0, 5)
processes = st.sampled_from(["p", "q", "r"])
keys = st.none() | st.sampled_from(["key", "other key"])


@dataclass
class ModelJob:
    status: Status = "validating_files"
    key: str | None = None
    run: int = 1
    crashes: int = 0
    epochs: int = 0
    turn: int = 0
    claim: Claim | None = None
    slot: str | None = None


@dataclass
class ModelSlot:
    token: str
    taken: float
    seen: float
    released: bool = False


@dataclass
class Model:
    """The ledger as dictionaries, and the task's versions as a list of what is held."""

    jobs: dict[str, ModelJob] = field(default_factory=dict)
    slots: dict[str, ModelSlot] = field(default_factory=dict)
    held: list[bool] = field(default_factory=list)
    prod: int | None = None
    turns: int = 0

    @property
    def served(self) -> int | None:
        if self.prod is not None:
            return self.prod
        free = [number for number, held in enumerate(self.held, 1) if not held]
        return free[-1] if free else None

    def of(self, token: str) -> str | None:
        for name, slot in self.slots.items():
            if slot.token == token and not slot.released:
                return name
        return None

    def line_up(self, job: ModelJob) -> None:
        self.turns += 1
        job.turn = self.turns
        job.status = "queued"

    def end(self, job: ModelJob, status: Status) -> None:
        job.status, job.claim, job.slot = status, None, None

    def give_back(self, job: ModelJob) -> None:
        self.end(job, "queued")
        job.run += 1

    def lose(self, job: ModelJob) -> None:
        job.crashes += 1
        if job.crashes == 3:
            self.end(job, "failed")
        else:
            self.give_back(job)


class LedgerMachine(RuleBasedStateMachine):
    stores: ClassVar[tuple[SqliteStore, SqliteStore]]

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.began = self.clock.now
        self.ledgers = emptied(self.stores, self.clock)
        self.turn = 0
        self.model = Model()
        self.claims: set[Claim] = set()
        self.tokens: dict[str, str] = {}

    def teardown(self) -> None:
        """Whatever has happened, no job runs on without a worker."""
        self.recover(STALE_S + 1)
        assert self.ledger.counts()["running"] == 0

    @property
    def ledger(self) -> SqlLedger:
        """One process's, then the other's."""
        self.turn += 1
        return self.ledgers[self.turn % 2]

    @property
    def seconds(self) -> float:
        return (self.clock.now - self.began).total_seconds()

    def chosen(self, number: int) -> tuple[str, ModelJob]:
        """One of the jobs, or one that there is not."""
        jobs = sorted(self.model.jobs.items(), key=lambda item: item[0])
        if not jobs:
            return "ftjob-" + "0" * 24, ModelJob(status="cancelled")
        return jobs[number % len(jobs)]

    def claim_of(self, number: int, process: str) -> tuple[Claim, ModelJob]:
        job, model = self.chosen(number)
        return Claim(job, model.run, self.tokens.get(process, "none")), model

    # --- clients ------------------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        """Begin with something to work on."""
        self.take_slot("p", die=False)
        for _ in range(2):
            self.open(None)
        for number in range(2):
            self.accept(number)
        self.start(0, "p")

    @rule(key=keys)
    def open(self, key: str | None) -> None:
        idempotency = None if key is None else Idempotency(key, "0" * 64)
        earlier = [id_ for id_, job in self.model.jobs.items() if key and job.key == key]
        if earlier and self.model.jobs[earlier[0]].status == "validating_files":
            with pytest.raises(Conflict):
                self.ledger.open(JobSpec(task="spam"), idempotency)
            return
        job, new = self.ledger.open(JobSpec(task="spam"), idempotency)
        assert new == (not earlier)
        if new:
            self.model.jobs[job.id] = ModelJob(key=key)
        else:
            assert job.id == earlier[0]

    @rule(number=some)
    def accept(self, number: int) -> None:
        job, model = self.chosen(number)
        if model.status != "validating_files":
            with pytest.raises((Conflict, NotFound)):
                self.ledger.accept(job, FILES)
            return
        self.ledger.accept(job, FILES)
        self.model.line_up(model)

    @rule(number=some)
    def discard(self, number: int) -> None:
        job, model = self.chosen(number)
        self.ledger.discard(job)
        if model.status == "validating_files":
            del self.model.jobs[job]

    @rule(number=some)
    def cancel(self, number: int) -> None:
        job, model = self.chosen(number)
        if job not in self.model.jobs or model.status in ("succeeded", "failed"):
            with pytest.raises((Conflict, NotFound)):
                self.ledger.cancel(job)
            return
        assert self.ledger.cancel(job).status == "cancelled"
        self.model.end(model, "cancelled")

    @rule(number=some)
    def resume(self, number: int) -> None:
        job, model = self.chosen(number)
        if model.status not in ("failed", "cancelled") or not model.turn:
            with pytest.raises((Conflict, NotFound)):
                self.ledger.resume(job)
            return
        self.ledger.resume(job)
        self.model.line_up(model)
        model.run += 1
        model.crashes = 0

    @rule(number=some)
    def delete(self, number: int) -> None:
        job, model = self.chosen(number)
        if job not in self.model.jobs or model.status not in ENDED:
            with pytest.raises((Conflict, NotFound)):
                self.ledger.delete(job)
            return
        self.ledger.delete(job)
        del self.model.jobs[job]

    # --- workers ------------------------------------------------------------------------------

    @rule(process=processes, die=st.booleans())
    def take_slot(self, process: str, die: bool) -> None:
        """Start a process; if it ran before, that one died, and whether is known."""
        last = self.tokens.get(process)
        known = [last] if last and die else []
        token = f"{process}{len(self.claims)}.{self.turn}"
        slot = self.ledger.take_slot(token, "host", 1, known)
        old = self.model.slots.get(slot.name)
        assert old is None or old.released or old.token in known
        if old is None:
            assert not [s for s in self.model.slots.values() if s.released or s.token in known]
        self.model.slots[slot.name] = ModelSlot(token, self.seconds, self.seconds)
        self.tokens[process] = token

    @rule(process=processes, drop=st.booleans())
    def beat(self, process: str, drop: bool) -> None:
        token = self.tokens.get(process, "none")
        mine = [job for job in self.model.jobs.values() if job.claim and job.claim.token == token]
        active = [job.claim for job in mine[drop:] if job.claim]
        name = self.model.of(token)
        assert self.ledger.beat(token, active) == (name is not None)
        if name is not None:
            self.model.slots[name].seen = self.seconds
            for job in mine[:drop]:
                self.model.lose(job)

    @rule(process=processes)
    def release(self, process: str) -> None:
        token = self.tokens.get(process, "none")
        name = self.model.of(token)
        self.ledger.release_slot(token)
        if name is None:
            return
        self.model.slots[name].released = True
        for job in self.model.jobs.values():
            if job.claim and job.claim.token == token:
                self.model.give_back(job)

    @rule(seconds=st.sampled_from([0, 1, STALE_S, STALE_S + 1]))
    def recover(self, seconds: int) -> None:
        self.clock.advance(seconds)
        before = self.seconds - STALE_S
        lost = set()
        for id_, job in self.model.jobs.items():
            if job.claim is None or job.slot is None:
                continue
            slot = self.model.slots[job.slot]
            heard = slot.seen if slot.token == job.claim.token else slot.taken
            if slot.released or heard < before:
                lost.add(id_)
                self.model.lose(job)
        moment = self.began + timedelta(seconds=before)
        assert set(self.ledger.recover(moment)) == lost
        assert self.ledger.recover(moment) == []

    @rule(number=some, process=processes)
    def start(self, number: int, process: str) -> None:
        claim, model = self.claim_of(number, process)
        name = self.model.of(claim.token)
        held = model.claim == claim and name is not None
        again = model.status == "running" and model.slot == name and not held
        if name is None or (model.status != "queued" and not again and not held):
            with pytest.raises(ClaimVoid):
                self.ledger.start(claim, name or "worker-1")
            return
        if again and model.crashes == 2:
            with pytest.raises(ClaimVoid):
                self.ledger.start(claim, name)
            self.model.lose(model)
            return
        self.ledger.start(claim, name)
        self.claims.add(claim)
        model.status, model.claim, model.slot = "running", claim, name
        model.crashes += again

    @rule(number=some, process=processes)
    def finish_epoch(self, number: int, process: str) -> None:
        claim, model = self.claim_of(number, process)
        if model.claim != claim:
            with pytest.raises(ClaimVoid):
                self.ledger.finish_epoch(claim, report(model.epochs + 1), b"state")
            return
        self.ledger.finish_epoch(claim, report(model.epochs + 1), b"state")
        model.epochs += 1

    @rule(number=some, process=processes, activate=st.booleans(), current=st.booleans())
    def succeed(self, number: int, process: str, activate: bool, current: bool) -> None:
        claim, model = self.claim_of(number, process)
        content = b"%d" % len(self.model.held)
        expected = self.model.served if current else 99
        decision = activation(expected, activate=activate)
        if model.claim != claim or not current:
            with pytest.raises(ClaimVoid if model.claim != claim else DefaultMoved):
                self.ledger.succeed(claim, new_version(content=content), decision, METRICS)
            return
        record = self.ledger.succeed(claim, new_version(content=content), decision, METRICS)
        self.model.held.append(not activate)
        assert (record.version, record.job) == (len(self.model.held), claim.job)
        if activate and self.model.prod is not None:
            self.model.prod = record.version
        self.model.end(model, "succeeded")

    @rule(number=some, process=processes)
    def fail(self, number: int, process: str) -> None:
        claim, model = self.claim_of(number, process)
        if model.claim != claim:
            with pytest.raises(ClaimVoid):
                self.ledger.fail(claim, JobError("code", "No."))
            return
        self.ledger.fail(claim, JobError("code", "No."))
        self.model.end(model, "failed")

    @rule(version=some)
    def set_alias(self, version: int) -> None:
        if 0 < version <= len(self.model.held):
            self.stores[0].set_alias("spam", "prod", version)
            self.model.prod = version

    # --- what holds at every moment -----------------------------------------------------------

    @invariant()
    def no_job_is_lost(self) -> None:
        jobs, more = self.ledger.page(limit=1000)
        assert not more
        assert {job.id: (job.status, job.run, job.crashes, len(job.epochs)) for job in jobs} == {
            id_: (job.status, job.run, job.crashes, job.epochs)
            for id_, job in self.model.jobs.items()
        }
        queue = [item for item in self.model.jobs.items() if item[1].status == "queued"]
        queue.sort(key=lambda item: item[1].turn)
        assert self.ledger.queued() == [(id_, job.run) for id_, job in queue]
        positions = {job.id: job.position for job in jobs if job.position is not None}
        assert positions == {id_: place for place, (id_, _) in enumerate(queue, 1)}

    @invariant()
    def events_are_whole(self) -> None:
        with self.stores[0].reading() as session:
            rows = session.execute(EVENTS).all()
        for id_, job in self.model.jobs.items():
            events = [(number, data) for of, number, data in rows if of == id_]
            assert [number for number, _ in events] == list(range(1, len(events) + 1))
            states = [data["status"] for _, data in events if "status" in data]
            assert states[-1] == job.status
        assert {row.job for row in rows} == set(self.model.jobs)

    @invariant()
    def running_is_one_claim_that_holds(self) -> None:
        holding = set()
        for claim in self.claims:
            if claim.job not in self.model.jobs:
                continue
            try:
                self.ledger.progress(claim, PROGRESS)
            except ClaimVoid:
                continue
            holding.add(claim)
        running = [job for job in self.model.jobs.values() if job.status == "running"]
        assert holding == {job.claim for job in running}
        assert len(holding) == len(running)

    @invariant()
    def versions_are_those_of_jobs(self) -> None:
        assert self.ledger.served("spam") == self.model.served
        try:
            versions = self.stores[1].list_versions("spam")
        except TaskNotFound:
            versions = []
        assert [version.held for version in versions] == self.model.held


@pytest.fixture(scope="module", autouse=True)
def _stores(stores: tuple[SqliteStore, SqliteStore]) -> None:
    LedgerMachine.stores = stores


TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(max_examples=10, stateful_step_count=25, deadline=None)
