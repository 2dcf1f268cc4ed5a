"""What keeps the jobs, and what it promises.

The ledger is the one truth about jobs: the server and every worker read and write it, each from
processes of their own, and whatever runs the work is only told from it what to do. It is kept in
the same database as the capsules, so that a version is registered and its job ends at once.

Promises of every implementation:

- Each method is one transaction, on disk before it returns, together with the job's new events.
- Methods are synchronous and safe to call from any thread and process.
- A worker writes under a `Claim`. One that is void changes nothing, and raises `ClaimVoid`.
- Methods raise `NotFound`, `Conflict` and `Unprocessable` of `service.errors`, and the errors of
  `service.store.errors` where the database fails.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from service.jobs.records import (
    Activation,
    Claim,
    DataFile,
    Event,
    Idempotency,
    Job,
    JobError,
    Level,
    NewVersion,
    Progress,
    Slot,
    Split,
    Status,
)
from service.jobs.spec import JobSpec
from service.store.base import VersionRecord


class ClaimVoid(Exception):  # noqa: N818 - says what is the case
    """The job was cancelled, deleted, or given to another worker."""


class DefaultMoved(Exception):  # noqa: N818 - says what is the case
    """Another version is served by now than the one a decision was made against."""


class Ledger(Protocol):
    """Durable jobs. See the module for what every method promises."""

    # --- for clients --------------------------------------------------------------------------

    def open(self, spec: JobSpec, idempotency: Idempotency | None = None) -> tuple[Job, bool]:
        """Begin a job, as `validating_files`.

        Returns:
            The new job and True; or, where this key was used for this very submission, the job
            that came of it and False.

        Raises:
            Conflict: `idempotency_in_progress`; the submission under this key is being validated.
            Unprocessable: `idempotency_key_reused`; the key was used for another submission.
        """
        ...

    def accept(
        self, job: str, files: Mapping[Split, DataFile], warnings: Sequence[str] = ()
    ) -> Job:
        """Keep the rows of a job that is being validated, and queue it.

        Raises:
            NotFound: `job_not_found`.
            Conflict: `job_not_validating`.
        """
        ...

    def discard(self, job: str) -> None:
        """Forget a job that is being validated; nothing where it is not there any more."""
        ...

    def discard_stale(self, before: datetime) -> int:
        """Forget the jobs that have been validated since before a moment: nobody does it any more.

        Returns:
            How many there were.
        """
        ...

    def get(self, job: str) -> Job:
        """Return one job.

        Raises:
            NotFound: `job_not_found`.
        """
        ...

    def page(
        self,
        after: str | None = None,
        limit: int = 20,
        status: Status | None = None,
        task: str | None = None,
    ) -> tuple[list[Job], bool]:
        """Return one page of the jobs, newest first, and whether there are more.

        Args:
            after: id of the last job of the previous page.
            limit: most jobs to return, at least 1.
            status: only those that are there.
            task: only those of a task.

        Raises:
            NotFound: `job_not_found`; there is no job `after`.
        """
        ...

    def events(self, job: str, after: int = 0, limit: int = 100) -> tuple[list[Event], bool]:
        """Return events of a job, oldest first, and whether there are more.

        Args:
            job: its id.
            after: number of the last event that the caller has; 0 for none.
            limit: most events to return, at least 1.

        Raises:
            NotFound: `job_not_found`.
        """
        ...

    def cancel(self, job: str) -> Job:
        """Cancel a job that has not ended; its worker stops within seconds.

        One that is cancelled already stays so.

        Raises:
            NotFound: `job_not_found`.
            Conflict: `job_ended`; it has succeeded or failed.
        """
        ...

    def resume(self, job: str) -> Job:
        """Queue a failed or cancelled job again; it goes on after its last finished epoch.

        Raises:
            NotFound: `job_not_found`.
            Conflict: `job_not_resumable`; it has succeeded, has not ended, or was cancelled before
                its rows were accepted.
        """
        ...

    def delete(self, job: str) -> None:
        """Forget an ended job with its rows, events and checkpoint; a version of it stays.

        Raises:
            NotFound: `job_not_found`.
            Conflict: `job_not_ended`.
        """
        ...

    def counts(self) -> Mapping[Status, int]:
        """Return how many jobs there are by status, zeros included."""
        ...

    # --- for workers ----------------------------------------------------------------------------

    def slots(self) -> list[Slot]:
        """Return every slot, by name."""
        ...

    def take_slot(self, token: str, host: str, pid: int, free: Collection[str]) -> Slot:
        """Take a slot for a process: one that was released, one of `free`, or a new one.

        Args:
            token: of the process.
            host: its machine.
            pid: its process id.
            free: tokens of processes that the caller knows to be dead.
        """
        ...

    def beat(self, token: str, active: Collection[Claim]) -> bool:
        """Say that a process lives, and what it works on.

        Jobs that run under its token and are not among `active` are taken from it, as from a lost
        worker. So a claim has to be among them before it is started.

        Returns:
            False where the process has lost its slot to another, and must stop.
        """
        ...

    def release_slot(self, token: str) -> None:
        """Give a slot back; its running jobs are queued again, without counting a crash.

        They are new runs, so that any worker can take them up.
        """
        ...

    def recover(self, before: datetime) -> list[str]:
        """Queue again, as new runs, the running jobs of slots not heard of since a moment.

        So are those that a process left behind in a slot which another took before that moment,
        and has not gone on with.

        A job whose worker was lost for the third time fails instead, with `worker_crashed`.

        Returns:
            The ids of the jobs.
        """
        ...

    def queued(self) -> list[tuple[str, int]]:
        """Return id and run of every queued job, in the order in which they are to be taken up."""
        ...

    def start(self, claim: Claim, worker: str) -> Job:
        """Take up a queued job; or one that another process of this slot was lost with.

        The latter counts as a crash; the third fails the job, with `worker_crashed`. A claim that
        is held already stays so.

        Args:
            claim: to take.
            worker: name of the slot that its token holds.

        Raises:
            ClaimVoid: this run is not to be done any more.
        """
        ...

    def data(self, job: str, split: Split) -> bytes | None:
        """Return a split's rows as they were accepted, or None where it has none."""
        ...

    def checkpoint(self, job: str) -> bytes | None:
        """Return the state after the last finished epoch, or None before the first."""
        ...

    def progress(self, claim: Claim, progress: Progress) -> None:
        """Note how far a job has come, without an event.

        Raises:
            ClaimVoid: stop working on it.
        """
        ...

    def say(
        self,
        claim: Claim,
        message: str,
        *,
        level: Level = "info",
        data: Mapping[str, Any] | None = None,
    ) -> None:
        """Write an event of type `message`.

        Raises:
            ClaimVoid: stop working on it.
        """
        ...

    def finish_epoch(self, claim: Claim, report: Mapping[str, Any], checkpoint: bytes) -> None:
        """Keep a finished epoch's report and checkpoint, with an event of type `metrics`.

        An epoch that is kept already is left as it is.

        Args:
            claim: of the worker.
            report: see `capsules.training.events.EpochReport`.
            checkpoint: the state after it.

        Raises:
            ClaimVoid: stop working on it.
        """
        ...

    def served(self, task: str) -> int | None:
        """Return the version that a task's bare name means: the alias `prod` where it is set, else
        the newest that is not held; None where there is none.
        """
        ...

    def succeed(
        self,
        claim: Claim,
        version: NewVersion,
        activation: Activation,
        metrics: Mapping[str, float],
    ) -> VersionRecord:
        """Register a version and end its job, in one.

        Where the task has a live version with these very bytes, it is the one that the job came to.

        Raises:
            ClaimVoid: nothing was registered.
            DefaultMoved: nothing was registered; decide again.
        """
        ...

    def fail(self, claim: Claim, error: JobError) -> None:
        """End a job that cannot be done; its rows and checkpoint stay, so that it can be resumed.

        Raises:
            ClaimVoid: it has ended otherwise.
        """
        ...
