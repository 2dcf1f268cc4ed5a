"""A job's events as they happen.

Workers write them from processes of their own, so the ledger is asked again and again. Events are
numbered, and asked for by the last number that a client has; what happens while nobody listens is
told to whoever comes back.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import structlog

from service.desk.desk import Desk
from service.errors import NotFound, Unavailable
from service.jobs.records import Event, Job, Progress

TICK_S = 1.0
"""Between two looks at a running job; so progress is told once a second at most."""

WAITING_S = 2.0
"""Between two looks at any other: each costs a few milliseconds of the server's."""

STEP_S = 0.2
"""Within which a stream ends once it is not wanted any more."""

QUIET_S = 15.0
"""After which a stream says that it is still there."""

PAGE = 100

logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Ended:
    """Nothing more will come: the job has ended, or is None where it was deleted."""

    job: Job | None


@dataclass(frozen=True, slots=True)
class Quiet:
    """Nothing has come for a while."""


Told = Event | Progress | Ended | Quiet


class Feed:
    """Follows one job.

    Args:
        desk: to ask.
        job: id of the job.
        after: number of the last event that is known; 0 for none.
        wanted: tells whether to go on.
        sleep: waits for some seconds.
        clock: seconds that only ever grow.
    """

    def __init__(
        self,
        desk: Desk,
        job: str,
        after: int,
        *,
        wanted: Callable[[], bool] = lambda: True,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.desk = desk
        self.job = job
        self.after = after
        self.wanted = wanted
        self.sleep = sleep
        self.clock = clock
        self.progress: Progress | None = None
        self.told_at = clock()

    async def follow(self) -> AsyncIterator[Told]:
        """Every event after the known one, and how the job progresses, until it has ended.

        Raises:
            ServiceError: the ledger has failed; begin again after the last event that came.
        """
        while self.wanted():
            try:
                # Before its events, so that of a job that has ended none is left behind.
                job = await self.desk.get(self.job)
                events, more = await self.desk.ask(
                    self.desk.ledger.events, self.job, self.after, PAGE
                )
            except NotFound:
                yield Ended(None)
                return
            except Unavailable as error:
                logger.warning("events_wait", job=self.job, reason=error.detail)
                await self.pause(WAITING_S)
                continue
            for told in self.news(job, events, last=not more):
                yield told
            if job.ended and not more:
                yield Ended(job)
                return
            if not more:
                await self.pause(TICK_S if job.status == "running" else WAITING_S)

    def news(self, job: Job, events: list[Event], *, last: bool) -> list[Told]:
        """What there is to tell.

        Args:
            job: as it is.
            events: the next ones.
            last: whether these are all.
        """
        news: list[Told] = list(events)
        if events:
            self.after = events[-1].number
        if last and job.progress not in (None, self.progress) and not job.ended:
            self.progress = job.progress
            news.append(job.progress)
        if not news and self.clock() - self.told_at >= QUIET_S:
            news.append(Quiet())
        if news:
            self.told_at = self.clock()
        return news

    async def pause(self, seconds: float) -> None:
        """Wait for the next look, if it is wanted so long."""
        end = self.clock() + seconds
        while self.wanted() and self.clock() < end:
            await self.sleep(STEP_S)
