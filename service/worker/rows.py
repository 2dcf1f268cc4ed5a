"""A job's rows, as the ledger keeps them."""

import gzip
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from capsules.data.base import Dataset
from capsules.data.packed import unpack
from capsules.data.split import split
from service.errors import Unprocessable
from service.jobs.ledger import Ledger
from service.jobs.records import Job, Split

DAMAGE = (gzip.BadGzipFile, zlib.error, EOFError, ValueError, TypeError)
"""What rows that have decayed on disk surface as."""


@dataclass(frozen=True, slots=True)
class Rows:
    """A job's rows, all under the labels of the training rows."""

    train: Dataset
    validation: Dataset
    test: Dataset | None


def read_rows(ledger: Ledger, job: Job) -> Rows:
    """The rows of a job; where none were given for validation, a part of the training rows is.

    Raises:
        DataError: the training rows cannot be divided.
        Unprocessable: `rows_damaged`.
    """
    train = dataset(ledger, job.id, "train", job.spec.labels)
    if train is None:
        raise damaged("train")
    validation = dataset(ledger, job.id, "validation", train.labels)
    test = dataset(ledger, job.id, "test", train.labels)
    if validation is None:
        parts = split(train, fraction=job.spec.validation_fraction, seed=job.spec.seed)
        train, validation = parts.train, parts.validation
    return Rows(train=train, validation=validation, test=test)


def dataset(ledger: Ledger, job: str, part: Split, labels: Sequence[str] | None) -> Dataset | None:
    """The rows of one split, or None where there are none.

    Raises:
        Unprocessable: `rows_damaged`.
    """
    content = ledger.data(job, part)
    if content is None:
        return None
    try:
        return unpack(content, labels=labels)
    except DAMAGE as error:
        raise damaged(part) from error


def damaged(part: Split) -> Unprocessable:
    """The error for rows that are not what was accepted."""
    return Unprocessable(
        f"The database no longer has the job's {part} rows as they came; submit the job again.",
        code="rows_damaged",
        field=part,
    )
