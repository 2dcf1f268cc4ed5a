"""Says, every two seconds, that this process lives; and notices who does not."""

from collections.abc import Callable
from datetime import datetime

import structlog

from service.jobs.ledger import Ledger
from service.jobs.slots import stale_before
from service.store.errors import StoreError
from service.worker.claims import Claims

BEAT_S = 2.0
RECOVER_BEATS = 3
"""Lost jobs are looked for at every third beat."""

logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)


class Heart:
    """Beats for one process.

    Args:
        ledger: hears it.
        claims: what the process works on.
        clock: tells the time, aware.
    """

    def __init__(self, ledger: Ledger, claims: Claims, clock: Callable[[], datetime]) -> None:
        self.ledger = ledger
        self.claims = claims
        self.clock = clock
        self.beats = 0

    def beat(self) -> bool:
        """Beat once; a ledger that cannot be reached is tried again at the next beat.

        Returns:
            False where the slot belongs to another process by now, so that this one must stop.
        """
        try:
            if not self.claims.report(self.ledger.beat):
                return False
            # After the beat: a machine that was asleep must not find its own process lost.
            if self.beats % RECOVER_BEATS == 0:
                lost = self.ledger.recover(stale_before(self.clock()))
                if lost:
                    logger.warning("jobs_recovered", jobs=lost)
            self.beats += 1
        except StoreError as error:
            logger.warning("heartbeat_failed", reason=str(error))
        return True
