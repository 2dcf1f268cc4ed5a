"""What has to be done about jobs every few seconds, whether or not a worker is there."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import NoReturn, Protocol

import structlog

from service.desk.desk import Desk
from service.errors import ServiceError
from service.jobs.slots import stale_before
from service.store.sql import utc_now

INTERVAL_S = 5.0

ABANDONED = timedelta(minutes=15)
"""After which nobody checks a job's rows any more: longer than waiting and checking can take."""

logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)


class JobsObserver(Protocol):
    """Is told how many jobs there are."""

    def jobs_counted(self, counts: Mapping[str, int]) -> None:
        """By status, zeros included."""
        ...


class Housekeeping:
    """Takes jobs from lost workers, forgets abandoned submissions, and counts.

    Args:
        desk: whose ledger and threads are used.
        observer: is told the counts.
        now: tells the time, in UTC.
        sleep: waits for some seconds.
    """

    def __init__(
        self,
        desk: Desk,
        observer: JobsObserver,
        *,
        now: Callable[[], datetime] = utc_now,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.desk = desk
        self.observer = observer
        self.now = now
        self.sleep = sleep
        self.trouble: str | None = None

    async def run(self) -> NoReturn:
        """Go on until cancelled; whatever fails is tried again."""
        while True:
            await self.turn()
            await self.sleep(INTERVAL_S)

    async def turn(self) -> None:
        """Do everything once; what fails is logged, once for as long as it is the same."""
        try:
            await self.tidy()
        except ServiceError as error:
            if error.detail != self.trouble:
                logger.warning("jobs_not_tidied", code=error.code, reason=error.detail)
            self.trouble = error.detail
        except Exception as error:
            if repr(error) != self.trouble:
                logger.exception("jobs_not_tidied", code="internal_error")
            self.trouble = repr(error)
        else:
            self.trouble = None

    async def tidy(self) -> None:
        """Do everything once.

        Raises:
            ServiceError: the ledger has failed.
        """
        desk, now = self.desk, self.now()
        recovered = await desk.change(desk.ledger.recover, stale_before(now))
        if recovered:
            logger.warning("jobs_recovered", jobs=recovered)
        discarded = await desk.change(desk.ledger.discard_stale, now - ABANDONED)
        if discarded:
            logger.warning("submissions_abandoned", jobs=discarded)
        counts = await desk.ask(desk.ledger.counts)
        self.observer.jobs_counted({str(status): count for status, count in counts.items()})


@asynccontextmanager
async def keeping(house: Housekeeping) -> AsyncIterator[None]:
    """Keep house in the background."""
    task = asyncio.create_task(house.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
