"""Jobs for the worker's tests, and what they come to."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from capsules.artefact.file import Capsule, parse
from capsules.data.base import Dataset
from capsules.data.packed import pack
from service.jobs.ledger import Ledger
from service.jobs.records import DataFacts, DataFile, Job, Split
from service.jobs.spec import JobSpec
from service.store.base import Store
from tests.support.datasets import separable

T = TypeVar("T")

OPTIONS: Mapping[str, Any] = {
    "task": "tiny",
    "epochs": 3,
    "batch_size": 8,
    "learning_rate": 0.02,
    "max_length": 32,
}


def packed(rows: Dataset) -> DataFile:
    facts = DataFacts(
        name="rows.jsonl",
        size=100,
        rows=len(rows),
        bad_rows=0,
        digest=rows.digest,
        classes=rows.counts(),
    )
    return DataFile(facts, pack(rows))


def submitted(
    ledger: Ledger,
    train: Dataset | None = None,
    validation: Dataset | None = None,
    test: Dataset | None = None,
    **options: Any,
) -> Job:
    """A queued job on rows of the tiny backbone's words."""
    job, _ = ledger.open(JobSpec(**{**OPTIONS, **options}))
    files: dict[Split, DataFile] = {"train": packed(train or separable(36, seed=1))}
    if validation is not None:
        files["validation"] = packed(validation)
    if test is not None:
        files["test"] = packed(test)
    return ledger.accept(job.id, files)


def at_once(name: str, part: Callable[[], T]) -> T:
    """A `Step` that remembers nothing."""
    return part()


def capsule_of(store: Store, job: Job) -> Capsule:
    """The capsule that a job came to."""
    assert job.result is not None, job
    return parse(store.artefact(job.result.task, job.result.version))


def learned(capsule: Capsule) -> dict[str, bytes]:
    """A capsule's tensors, to the bit."""
    return {name: tensor.numpy().tobytes() for name, tensor in capsule.tensors.items()}


def told(ledger: Ledger, job: str) -> list[tuple[str, str]]:
    """Type and message of a job's events."""
    events, more = ledger.events(job, limit=1000)
    assert not more
    return [(event.type, event.message) for event in events]


def measured(ledger: Ledger, job: str) -> list[dict[str, Any]]:
    """What the epochs of a job came to, but for how long they took."""
    return [
        {name: value for name, value in epoch.items() if name != "seconds"}
        for epoch in ledger.get(job).epochs
    ]
