from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import partial

import pytest
from structlog.testing import capture_logs

from service.desk.desk import Desk
from service.desk.feed import PAGE, QUIET_S, Ended, Feed, Quiet, Told
from service.errors import InternalError
from service.jobs.records import Event, Job, Progress
from service.jobs.sql import SqlLedger
from service.store.errors import StoreError, StoreUnavailable
from tests.service.desk.conftest import RecordingShelf
from tests.service.jobs.samples import activation, new_version, queued, report, running


@dataclass
class Time:
    """Time that passes while somebody sleeps; `meanwhile` is called after so many seconds."""

    now: float = 0.0
    meanwhile: dict[float, Callable[[], object]] = field(default_factory=dict)

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        for when in sorted(when for when in self.meanwhile if when <= self.now):
            self.meanwhile.pop(when)()


@pytest.fixture
def time() -> Time:
    return Time()


def feed(desk: Desk, job: str, time: Time, after: int = 0, **options: object) -> Feed:
    return Feed(desk, job, after, sleep=time.sleep, clock=time.clock, **options)  # type: ignore[arg-type]


async def all_of(stream: AsyncIterator[Told]) -> list[Told]:
    return [told async for told in stream]


def numbers(told: list[Told]) -> list[int]:
    return [one.number for one in told if isinstance(one, Event)]


def end_of(told: list[Told]) -> Job | None:
    assert isinstance(told[-1], Ended)
    assert sum(isinstance(one, Ended) for one in told) == 1
    return told[-1].job


def progress(step: int) -> Progress:
    return Progress(epoch=1, epochs=3, step=step, steps=10, loss=0.5, seconds_left=None)


async def test_an_ended_job_is_told_to_its_end_at_once(
    desk: Desk, ledger: SqlLedger, time: Time
) -> None:
    job = queued(ledger)
    ledger.cancel(job.id)
    told = await all_of(feed(desk, job.id, time).follow())
    assert numbers(told) == [1, 2, 3]
    ended = end_of(told)
    assert ended is not None
    assert ended.status == "cancelled"
    assert time.now == 0


async def test_a_version_is_here_before_anybody_is_told_of_it(
    desk: Desk, ledger: SqlLedger, shelf: RecordingShelf, time: Time
) -> None:
    claim = running(ledger)
    seen: list[tuple[str, int]] = []
    time.meanwhile = {1.5: lambda: ledger.succeed(claim, new_version(), activation(), {})}
    async for told in feed(desk, claim.job, time).follow():
        if isinstance(told, Event) and told.data.get("status") == "succeeded":
            seen = list(shelf.asked)
    assert seen == [("spam", 1)]


@pytest.mark.parametrize("after", [1, 3, 99])
async def test_it_goes_on_after_what_is_known(
    desk: Desk, ledger: SqlLedger, time: Time, after: int
) -> None:
    job = queued(ledger)
    ledger.cancel(job.id)
    told = await all_of(feed(desk, job.id, time, after).follow())
    assert numbers(told) == [number for number in (1, 2, 3) if number > after]
    assert end_of(told) is not None


async def test_events_come_as_they_happen_in_order_and_once(
    desk: Desk, ledger: SqlLedger, time: Time
) -> None:
    claim = running(ledger)
    time.meanwhile = {
        1.5: lambda: ledger.finish_epoch(claim, report(1), b"1"),
        3.5: lambda: ledger.say(claim, "Odd."),
        5.5: lambda: ledger.cancel(claim.job),
    }
    seen: list[tuple[float, str]] = []
    told: list[Told] = []
    async for one in feed(desk, claim.job, time).follow():
        told.append(one)
        if isinstance(one, Event):
            seen.append((time.now, one.message))
    events, _ = ledger.events(claim.job)
    assert numbers(told) == [event.number for event in events]
    times = [round(at) for at, _ in seen[-3:]]
    assert times == [2, 4, 6]
    assert end_of(told) is not None


async def test_more_than_a_page_has_happened(desk: Desk, ledger: SqlLedger, time: Time) -> None:
    claim = running(ledger)
    for number in range(PAGE):
        ledger.say(claim, f"Number {number}.")
    ledger.cancel(claim.job)
    told = await all_of(feed(desk, claim.job, time).follow())
    assert numbers(told) == list(range(1, len(numbers(told)) + 1))
    assert len(numbers(told)) > PAGE
    assert end_of(told) is not None
    assert time.now == 0


async def test_progress_is_told_where_it_is_another_and_once_a_second_at_most(
    desk: Desk, ledger: SqlLedger, time: Time
) -> None:
    claim = running(ledger)
    ledger.progress(claim, progress(1))
    time.meanwhile = {
        1 + step / 10: partial(ledger.progress, claim, progress(step)) for step in range(2, 10)
    }
    time.meanwhile[9.5] = lambda: ledger.cancel(claim.job)
    told = await all_of(feed(desk, claim.job, time).follow())
    steps = [one.step for one in told if isinstance(one, Progress)]
    assert steps[0] == 1
    assert steps[-1] == 9
    assert len(steps) <= 3
    assert Quiet() not in told


async def test_silence_is_broken_now_and_then(desk: Desk, ledger: SqlLedger, time: Time) -> None:
    job = queued(ledger)
    time.meanwhile = {3.4 * QUIET_S: lambda: ledger.cancel(job.id)}
    told = await all_of(feed(desk, job.id, time).follow())
    assert told.count(Quiet()) == 3


async def test_a_job_that_is_deleted_has_ended(desk: Desk, ledger: SqlLedger, time: Time) -> None:
    job = queued(ledger)

    def delete() -> None:
        ledger.cancel(job.id)
        ledger.delete(job.id)

    time.meanwhile = {2.5: delete}
    told = await all_of(feed(desk, job.id, time).follow())
    assert end_of(told) is None


async def test_it_ends_soon_once_it_is_not_wanted(
    desk: Desk, ledger: SqlLedger, time: Time
) -> None:
    job = queued(ledger)
    told = await all_of(feed(desk, job.id, time, wanted=lambda: time.now < 7.1).follow())
    assert numbers(told) == [1, 2]
    assert not isinstance(told[-1], Ended)
    assert time.now < 7.5


async def test_a_database_that_is_away_for_a_while(
    desk: Desk, ledger: SqlLedger, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = queued(ledger)
    get = ledger.get
    ledger.cancel(job.id)

    def fails(name: str) -> Job:
        if time.now < 5:
            raise StoreUnavailable("locked")
        return get(name)

    monkeypatch.setattr(ledger, "get", fails)
    with capture_logs() as logs:
        told = await all_of(feed(desk, job.id, time).follow())
    assert numbers(told) == [1, 2, 3]
    assert "events_wait" in [line["event"] for line in logs]


async def test_a_database_that_is_broken_ends_it_unfinished(
    desk: Desk, ledger: SqlLedger, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = queued(ledger)

    def fails(name: str) -> Job:
        raise StoreError("broken")

    monkeypatch.setattr(ledger, "get", fails)
    with capture_logs(), pytest.raises(InternalError):
        await all_of(feed(desk, job.id, time).follow())
