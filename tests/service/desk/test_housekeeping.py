import asyncio
from collections.abc import Mapping

import pytest
from structlog.testing import capture_logs

from service.desk.desk import Desk
from service.desk.housekeeping import ABANDONED, Housekeeping, keeping
from service.jobs.slots import STALE
from service.jobs.sql import SqlLedger
from service.store.errors import StoreUnavailable
from tests.service.jobs.samples import Clock, queued, running, validating


class Observer:
    def __init__(self) -> None:
        self.counts: Mapping[str, int] = {}

    def jobs_counted(self, counts: Mapping[str, int]) -> None:
        self.counts = counts


@pytest.fixture
def observer() -> Observer:
    return Observer()


@pytest.fixture
def house(desk: Desk, observer: Observer, clock: Clock) -> Housekeeping:
    return Housekeeping(desk, observer, now=clock)


async def test_jobs_of_a_lost_worker_are_queued_again(
    house: Housekeeping, ledger: SqlLedger, clock: Clock, observer: Observer
) -> None:
    claim = running(ledger)
    clock.advance(STALE.total_seconds() - 1)
    await house.turn()
    assert ledger.get(claim.job).status == "running"
    clock.advance(2)
    with capture_logs() as logs:
        await house.turn()
    job = ledger.get(claim.job)
    assert (job.status, job.run, job.crashes) == ("queued", 2, 1)
    assert logs[0]["jobs"] == [claim.job]
    assert observer.counts["queued"] == 1
    assert observer.counts["running"] == 0


async def test_abandoned_submissions_are_forgotten(
    house: Housekeeping, ledger: SqlLedger, clock: Clock
) -> None:
    kept = queued(ledger)
    validating(ledger)
    clock.advance(ABANDONED.total_seconds() - 1)
    young = validating(ledger)
    await house.turn()
    assert ledger.counts()["validating_files"] == 2
    clock.advance(2)
    with capture_logs() as logs:
        await house.turn()
    jobs, _ = ledger.page()
    assert [job.id for job in jobs] == [young.id, kept.id]
    assert (logs[0]["event"], logs[0]["jobs"]) == ("submissions_abandoned", 1)


async def test_trouble_is_told_once_and_tried_again(
    house: Housekeeping, ledger: SqlLedger, observer: Observer, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [StoreUnavailable("locked")] * 3 + [RuntimeError("unforeseen")] * 3

    def fails(*_: object) -> list[str]:
        raise failures.pop(0)

    with monkeypatch.context() as patch, capture_logs() as logs:
        patch.setattr(ledger, "recover", fails)
        for _ in range(6):
            await house.turn()
    told = [line["event"] for line in logs if line["event"] == "jobs_not_tidied"]
    assert len(told) == 2
    await house.turn()
    assert observer.counts["queued"] == 0


async def test_house_is_kept_for_as_long_as_the_server_runs(
    desk: Desk, ledger: SqlLedger, observer: Observer
) -> None:
    turns = 0
    again = asyncio.Event()

    async def sleep(seconds: float) -> None:
        nonlocal turns
        turns += 1
        if turns == 3:
            again.set()
            await asyncio.Event().wait()

    async with keeping(Housekeeping(desk, observer, sleep=sleep)):
        await asyncio.wait_for(again.wait(), 20)
    assert turns == 3
    assert set(observer.counts) == set(ledger.counts())
