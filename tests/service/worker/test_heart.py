from datetime import UTC, datetime

from structlog.testing import capture_logs

from service.jobs.records import Claim
from service.jobs.slots import STALE, stale_before
from service.jobs.sql import SqlLedger
from service.store.errors import StoreUnavailable
from service.worker.claims import Claims
from service.worker.heart import RECOVER_BEATS, Heart
from tests.service.worker.conftest import TOKEN, Begin

FAR = datetime(2100, 1, 1, tzinfo=UTC)


def now() -> datetime:
    return datetime.now(UTC)


def test_it_keeps_a_slot_and_its_jobs(ledger: SqlLedger, begin: Begin) -> None:
    claims = Claims(TOKEN)
    claim, job = begin()
    heart = Heart(ledger, claims, now)
    before = ledger.slots()[0].seen_at
    with claims.hold(job.id, job.run) as held:
        assert held == claim
        assert heart.beat()
    assert ledger.slots()[0].seen_at > before
    assert ledger.get(job.id).status == "running"


def test_a_job_that_nobody_works_on_is_queued_again(ledger: SqlLedger, begin: Begin) -> None:
    _, job = begin()
    assert Heart(ledger, Claims(TOKEN), now).beat()
    found = ledger.get(job.id)
    assert (found.status, found.run, found.crashes) == ("queued", 2, 1)


def test_a_slot_that_another_process_took_is_lost(ledger: SqlLedger) -> None:
    ledger.take_slot(TOKEN, "host", 1, ())
    ledger.take_slot("other", "host", 2, [TOKEN])
    assert not Heart(ledger, Claims(TOKEN), now).beat()


def test_jobs_of_lost_workers_are_queued_again_now_and_then(
    ledger: SqlLedger, begin: Begin
) -> None:
    _, job = begin()
    mine = "mine"
    ledger.take_slot(mine, "host", 2, ())
    heart = Heart(ledger, Claims(mine), now)
    assert heart.beat()
    assert ledger.get(job.id).status == "running"
    heart.clock = lambda: FAR
    for _ in range(RECOVER_BEATS - 1):
        assert heart.beat()
        assert ledger.get(job.id).status == "running"
    with capture_logs() as logs:
        assert heart.beat()
    assert ledger.get(job.id).status == "queued"
    assert [log["jobs"] for log in logs if log["event"] == "jobs_recovered"] == [[job.id]]


def test_a_ledger_that_is_not_there_costs_no_slot(ledger: SqlLedger) -> None:
    class Gone(SqlLedger):
        def beat(self, token: str, active: object) -> bool:
            raise StoreUnavailable("locked")

    with capture_logs() as logs:
        assert Heart(Gone(ledger.store), Claims(TOKEN), now).beat()
    assert [log["event"] for log in logs] == ["heartbeat_failed"]


def test_who_is_silent_for_20_seconds_is_lost() -> None:
    assert (FAR - stale_before(FAR)).total_seconds() == STALE.total_seconds() == 20


def test_claims_are_told_as_they_are(ledger: SqlLedger) -> None:
    told: list[object] = []

    class Heard(SqlLedger):
        def beat(self, token: str, active: object) -> bool:
            told.append((token, active))
            return True

    claims = Claims(TOKEN)
    with claims.hold("a", 3):
        Heart(Heard(ledger.store), claims, now).beat()
    assert told == [(TOKEN, (Claim("a", 3, TOKEN),))]
