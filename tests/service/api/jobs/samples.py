"""What the tests submit, and what they play the worker with."""

import json
from typing import Any

import httpx2
from sqlalchemy import event

from service.jobs.ledger import Ledger
from service.jobs.records import Claim
from service.jobs.sql import SqlLedger
from tests.support.row_files import four

JOBS = "/v1/admin/training/jobs"
TOKEN = "the token of a worker"


def form(spec: dict[str, Any] | None = None, /, **files: tuple[str, bytes]) -> dict[str, Any]:
    """A form as the client's arguments."""
    options = {"task": "spam"} if spec is None else spec
    return {"data": {"spec": json.dumps(options)}, "files": files or {"train": ("a.jsonl", four())}}


def submitted(client: httpx2.Client, **spec: Any) -> dict[str, Any]:
    """A job that was taken."""
    response = client.post(JOBS, **form({"task": "spam", **spec}))
    assert response.status_code == 202, response.text
    job: dict[str, Any] = response.json()
    return job


def make_hasty(ledger: Ledger) -> None:
    """Let a ledger not wait for the disk, as no power is lost in a test."""
    assert isinstance(ledger, SqlLedger)
    engine = ledger.store.engine
    event.listen(
        engine,
        "connect",
        lambda connection, _entry: connection.execute("PRAGMA synchronous = OFF"),
    )
    engine.dispose()


def taken_up(ledger: Ledger, job: str) -> Claim:
    """A worker's right to a job that it has begun."""
    record = ledger.get(job)
    claim = Claim(job, record.run, TOKEN)
    slot = ledger.take_slot(TOKEN, "host", 1, free=[TOKEN])
    ledger.start(claim, slot.name)
    return claim
