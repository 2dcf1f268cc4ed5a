"""The jobs that this process works on."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from threading import Lock

from service.jobs.records import Claim


class Claims:
    """What a heartbeat says that its process works on.

    Whatever the ledger has under the process's token and a heartbeat does not name is taken from
    it. So a claim is among them before its job is taken up, and no heartbeat is under way then that
    was drawn up without it.

    Args:
        token: of the process.
    """

    def __init__(self, token: str) -> None:
        self.token = token
        self.held: list[Claim] = []
        self.lock = Lock()

    @contextmanager
    def hold(self, job: str, run: int) -> Iterator[Claim]:
        """Name a job in heartbeats for as long as it is worked on."""
        claim = Claim(job=job, run=run, token=self.token)
        with self.lock:
            self.held.append(claim)
        try:
            yield claim
        finally:
            with self.lock:
                self.held.remove(claim)

    def report(self, beat: Callable[[str, Collection[Claim]], bool]) -> bool:
        """Make a heartbeat while nothing is taken up; gives back what it says."""
        with self.lock:
            return beat(self.token, tuple(self.held))

    def runs(self) -> frozenset[tuple[str, int]]:
        """Id and run of what is worked on."""
        with self.lock:
            return frozenset((claim.job, claim.run) for claim in self.held)
