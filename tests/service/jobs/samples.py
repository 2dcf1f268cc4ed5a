"""What the ledger's tests put into it."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from service.jobs.ledger import Ledger
from service.jobs.records import (
    Activation,
    Claim,
    DataFacts,
    DataFile,
    Job,
    NewVersion,
    Slot,
    Split,
)
from service.jobs.spec import JobSpec

METRICS = {"validation_accuracy": 0.75}
REASON = "Nothing was served before."


@dataclass
class Clock:
    """A clock that is moved by hand."""

    now: datetime = field(default_factory=lambda: datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> datetime:
        self.now += timedelta(seconds=seconds)
        return self.now


def data_file(content: bytes = b"rows", **facts: Any) -> DataFile:
    known: dict[str, Any] = {
        "name": "rows.csv",
        "size": 100,
        "rows": 9,
        "bad_rows": 1,
        "digest": hashlib.sha256(content).hexdigest(),
        "classes": {"ham": 5, "späm 🙂": 4},
        "duplicates": 2,
        "conflicts": 1,
        "problems": ((3, "the label is missing"),),
    }
    return DataFile(DataFacts(**(known | facts)), content)


FILES: Mapping[Split, DataFile] = {
    "train": data_file(),
    "validation": data_file(b"more", name="more.csv", overlap=3, problems=()),
}


def report(epoch: int) -> dict[str, Any]:
    return {
        "epoch": epoch,
        "train_loss": 1 / epoch,
        "validation_loss": 2 / epoch,
        "validation_accuracy": 0.75,
        "best": epoch == 1,
        "seconds": 1.5,
    }


def new_version(task: str = "spam", content: bytes = b"capsule") -> NewVersion:
    return NewVersion(
        task=task,
        digest=hashlib.sha256(content).hexdigest(),
        manifest={"task": task},
        content=content,
        evaluation={"split": "validation", "accuracy": 0.75},
    )


def activation(expected: int | None = None, *, activate: bool = True) -> Activation:
    return Activation(activate, expected, REASON)


def validating(ledger: Ledger, **spec: Any) -> Job:
    job, new = ledger.open(JobSpec(**{"task": "spam", **spec}))
    assert new
    return job


def queued(ledger: Ledger, **spec: Any) -> Job:
    return ledger.accept(validating(ledger, **spec).id, FILES)


def slot(ledger: Ledger, token: str = "token", free: tuple[str, ...] = ()) -> Slot:
    return ledger.take_slot(token, "host", 123, free)


def running(ledger: Ledger, token: str = "token", **spec: Any) -> Claim:
    """Submit a job, and take it up in the slot of a process."""
    job = queued(ledger, **spec)
    claim = Claim(job.id, job.run, token)
    ledger.start(claim, slot(ledger, token).name)
    return claim


def told(ledger: Ledger, job: str) -> list[str]:
    """What the events of a job say."""
    return [event.message for event in ledger.events(job)[0]]
