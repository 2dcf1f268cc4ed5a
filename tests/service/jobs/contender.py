"""A process that takes what it can get, at the same time as others; says in one line what it got.

Usage: contender.py FOLDER NUMBER; then, a line each: `slots`, `jobs` and `losses`.
"""

import sys
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta

from service.jobs.ledger import ClaimVoid, Ledger
from service.jobs.records import Claim
from service.jobs.sql import open_ledger
from service.store import open_store
from service.store.sql import utc_now


def slots(ledger: Ledger, token: str) -> list[str]:
    """Take five, of which the last is this process's own."""
    return [ledger.take_slot(f"{token}{n}", "host", n, ["dead"]).name for n in range(5)]


def jobs(ledger: Ledger, token: str) -> list[str]:
    """Take up every job of the queue that can be had."""
    (own,) = (slot for slot in ledger.slots() if slot.token == f"{token}4")
    taken = []
    for job, run in ledger.queued():
        try:
            taken.append(ledger.start(Claim(job, run, own.token), own.name).id)
        except ClaimVoid:
            continue
    return taken


def losses(ledger: Ledger, _token: str) -> list[str]:
    """Take for lost whoever has not been heard of in the coming hour."""
    return ledger.recover(utc_now() + timedelta(hours=1))


PHASES: dict[str, Callable[[Ledger, str], list[str]]] = {
    phase.__name__: phase for phase in (slots, jobs, losses)
}

if __name__ == "__main__":
    with closing(open_store(sys.argv[1])) as store:
        for line in sys.stdin:
            got = PHASES[line.strip()](open_ledger(store), sys.argv[2])
            sys.stdout.write(" ".join(got) + "\n")
            sys.stdout.flush()
