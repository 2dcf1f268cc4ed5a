"""What the ledger answers to what cannot be done; the codes are part of the HTTP contract."""

from service.errors import Conflict, NotFound, Unprocessable
from service.jobs.records import Status

SHOWN = 64
"""Characters of an unknown id that an answer repeats."""

KEY = "Idempotency-Key"


def job_not_found(job: str, field: str | None = None) -> NotFound:
    """There is no such job.

    Args:
        job: the id, or whatever it was.
        field: the parameter it came in, if it has a name.
    """
    return NotFound(
        f"There is no training job {job[:SHOWN]!r}; list the jobs to see those there are.",
        code="job_not_found",
        field=field,
    )


def job_not_validating(job: str, status: Status) -> Conflict:
    """The job has its rows already, or has ended."""
    return Conflict(
        f"The rows of {job} cannot be accepted any more, as its status is {status}; submit a new "
        "job.",
        code="job_not_validating",
    )


def job_ended(job: str, status: Status) -> Conflict:
    """The job has come to its end, so it cannot be cancelled."""
    return Conflict(
        f"There is nothing to cancel, as {job} has {status} already; delete it to be rid of it.",
        code="job_ended",
    )


def job_not_resumable(job: str, status: Status) -> Conflict:
    """The job has not ended, or has succeeded."""
    return Conflict(
        f"Only a job that has failed or was cancelled can be resumed, and the status of {job} is "
        f"{status}; submit a new job to train once more.",
        code="job_not_resumable",
    )


def job_without_rows(job: str) -> Conflict:
    """The job was cancelled too early to be resumed."""
    return Conflict(
        f"{job} was cancelled before its rows were accepted, so there is nothing to resume; submit "
        "a new job.",
        code="job_not_resumable",
    )


def job_not_ended(job: str, status: Status) -> Conflict:
    """The job is under way, so it cannot be deleted."""
    return Conflict(
        f"Only a job that has ended can be deleted, and the status of {job} is {status}; cancel it "
        "first.",
        code="job_not_ended",
    )


def idempotency_in_progress() -> Conflict:
    """The first submission under a key is still being validated."""
    return Conflict(
        f"{KEY}: the first submission under this key is still being validated; send it again in a "
        "few seconds, or cancel that job.",
        code="idempotency_in_progress",
        field=KEY,
        retry_after=1,
    )


def idempotency_key_reused() -> Unprocessable:
    """Something else was submitted under a key before."""
    return Unprocessable(
        f"{KEY}: something else was submitted under this key before; use a new key for every new "
        "submission.",
        code="idempotency_key_reused",
        field=KEY,
    )
