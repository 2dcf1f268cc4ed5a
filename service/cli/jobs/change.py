"""`capsule jobs cancel`, `resume` and `rm`."""

from rich.text import Text

from capsules.cli.output import Output, cell, say
from service.cli.client import Client
from service.cli.jobs.replies import Job
from service.cli.jobs.requests import Jobs
from service.cli.jobs.watch import hint


def cancel(client: Client, job: str, output: Output) -> None:
    """Cancel a job.

    Raises:
        UsageError: that is no job's id.
        ServerError: it has ended, does not exist, or there is no server.
    """
    show(Jobs(client).cancel(job), output)
    if output.human:
        say(f"Take it up again with: {hint(client, 'resume', job)}")


def resume(client: Client, job: str, output: Output) -> None:
    """Queue an ended job again.

    Raises:
        UsageError: that is no job's id.
        ServerError: it cannot be resumed, does not exist, or there is no server.
    """
    show(Jobs(client).resume(job), output)
    if output.human:
        say(f"Follow it with: {hint(client, 'watch', job)}")


def remove(client: Client, job: str, output: Output) -> None:
    """Delete an ended job.

    Raises:
        UsageError: that is no job's id.
        ServerError: it has not ended, does not exist, or there is no server.
    """
    gone = Jobs(client).remove(job)
    output.show(
        document=gone.model_dump(mode="json"),
        rows=[(gone.id, "deleted")],
        table=lambda: Text(cell(f"Deleted {gone.id}.")),
    )


def show(job: Job, output: Output) -> None:
    """Show where a job is now."""
    output.show(
        document=job.model_dump(mode="json"),
        rows=[(job.id, job.status)],
        table=lambda: Text(cell(f"{job.id} is {job.status}.")),
    )
