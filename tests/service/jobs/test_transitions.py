"""Every state against everything that can be done in it."""

from collections.abc import Callable

import pytest

from service.errors import Conflict
from service.jobs.ledger import ClaimVoid
from service.jobs.records import Claim, JobError, Status
from service.jobs.sql import SqlLedger
from tests.service.jobs.samples import (
    FILES,
    METRICS,
    Clock,
    activation,
    new_version,
    queued,
    report,
    running,
    slot,
    validating,
)
from tests.service.jobs.test_sql_slots import everything

Deed = Callable[[SqlLedger, Clock, Claim], object]

STATES: dict[Status, Callable[[SqlLedger], str]] = {
    "validating_files": lambda ledger: validating(ledger).id,
    "queued": lambda ledger: queued(ledger).id,
    "running": lambda ledger: running(ledger).job,
    "succeeded": lambda ledger: ended(ledger, "succeeded"),
    "failed": lambda ledger: ended(ledger, "failed"),
    "cancelled": lambda ledger: ended(ledger, "cancelled"),
}

DEEDS: dict[str, Deed] = {
    "accept": lambda ledger, _clock, claim: ledger.accept(claim.job, FILES),
    "discard": lambda ledger, _clock, claim: ledger.discard(claim.job),
    "discard_stale": lambda ledger, clock, _claim: ledger.discard_stale(clock.advance(1)),
    "cancel": lambda ledger, _clock, claim: ledger.cancel(claim.job),
    "resume": lambda ledger, _clock, claim: ledger.resume(claim.job),
    "delete": lambda ledger, _clock, claim: ledger.delete(claim.job),
    "start": lambda ledger, _clock, claim: ledger.start(claim, "worker-1"),
    "start again": lambda ledger, _clock, claim: (
        slot(ledger, "new", free=("token",)),
        ledger.start(Claim(claim.job, claim.run, "new"), "worker-1"),
    ),
    "say": lambda ledger, _clock, claim: ledger.say(claim, "message"),
    "finish_epoch": lambda ledger, _clock, claim: ledger.finish_epoch(claim, report(1), b"state"),
    "succeed": lambda ledger, _clock, claim: ledger.succeed(
        claim, new_version(content=b"new"), activation(ledger.served("spam")), METRICS
    ),
    "fail": lambda ledger, _clock, claim: ledger.fail(claim, JobError("code", "No.")),
    "beat": lambda ledger, _clock, _claim: ledger.beat("token", []),
    "release_slot": lambda ledger, _clock, _claim: ledger.release_slot("token"),
    "recover": lambda ledger, clock, _claim: ledger.recover(clock.advance(1)),
}

BECOMES: dict[str, dict[Status, Status | None]] = {
    "accept": {"validating_files": "queued"},
    "discard": {"validating_files": None},
    "discard_stale": {"validating_files": None},
    "cancel": dict.fromkeys(("validating_files", "queued", "running", "cancelled"), "cancelled"),
    "resume": {"failed": "queued", "cancelled": "queued"},
    "delete": {"succeeded": None, "failed": None, "cancelled": None},
    "start": {"queued": "running", "running": "running"},
    "start again": {"queued": "running", "running": "running"},
    "say": {"running": "running"},
    "finish_epoch": {"running": "running"},
    "succeed": {"running": "succeeded"},
    "fail": {"running": "failed"},
    "beat": {"running": "queued"},
    "release_slot": {"running": "queued"},
    "recover": {"running": "queued"},
}
"""What a state becomes, None for nothing; everything else is forbidden, or passes the job over."""

FORBIDDEN: dict[str, type[Exception] | None] = {
    "accept": Conflict,
    "cancel": Conflict,
    "resume": Conflict,
    "delete": Conflict,
    "start": ClaimVoid,
    "start again": ClaimVoid,
    "say": ClaimVoid,
    "finish_epoch": ClaimVoid,
    "succeed": ClaimVoid,
    "fail": ClaimVoid,
}

SILENT = {("cancel", "cancelled"), ("start", "running")}
"""What says nothing, as it was so already."""


def ended(ledger: SqlLedger, how: Status) -> str:
    claim = running(ledger)
    if how == "succeeded":
        ledger.succeed(claim, new_version(), activation(), METRICS)
    elif how == "failed":
        ledger.fail(claim, JobError("code", "No."))
    else:
        ledger.cancel(claim.job)
    return claim.job


@pytest.mark.parametrize("deed", DEEDS)
@pytest.mark.parametrize("state", STATES)
def test_every_state_and_deed(ledger: SqlLedger, clock: Clock, state: Status, deed: str) -> None:
    job = STATES[state](ledger)
    slot(ledger)
    bystander = queued(ledger)
    claim = Claim(job, 1, "token")
    before = ledger.get(job)
    assert before.status == state
    events = len(ledger.events(job)[0])

    if state not in BECOMES[deed]:
        kept = everything(ledger)
        forbidden = FORBIDDEN.get(deed)
        if forbidden is None:
            DEEDS[deed](ledger, clock, claim)
        else:
            with pytest.raises(forbidden):
                DEEDS[deed](ledger, clock, claim)
        if deed not in ("beat", "release_slot", "start again"):
            assert everything(ledger) == kept
        assert ledger.get(job) == before
        assert len(ledger.events(job)[0]) == events
    else:
        DEEDS[deed](ledger, clock, claim)
        after = BECOMES[deed][state]
        assert {j.id: j.status for j in ledger.page()[0] if j.id != bystander.id} == (
            {} if after is None else {job: after}
        )
        if after is not None:
            told = ledger.events(job)[0]
            assert (len(told) > events) == ((deed, state) not in SILENT)
            assert [event.number for event in told] == list(range(1, len(told) + 1))
            if after != state:
                assert told[-1].data["status"] == after
    assert ledger.get(bystander.id).status == "queued"


def test_what_is_forbidden_says_why(ledger: SqlLedger) -> None:
    job = ended(ledger, "succeeded")
    with pytest.raises(Conflict, match="submit a new job") as caught:
        ledger.accept(job, FILES)
    assert caught.value.code == "job_not_validating"
    with pytest.raises(Conflict, match="succeeded already; delete it") as caught:
        ledger.cancel(job)
    assert caught.value.code == "job_ended"
    with pytest.raises(Conflict, match="is succeeded; submit a new job") as caught:
        ledger.resume(job)
    assert caught.value.code == "job_not_resumable"
    with pytest.raises(Conflict, match="is running; cancel it first") as caught:
        ledger.delete(running(ledger).job)
    assert caught.value.code == "job_not_ended"
