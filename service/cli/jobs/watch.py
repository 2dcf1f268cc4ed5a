"""`capsule jobs watch`: what happens to a job, as it happens."""

from collections.abc import Iterable
from contextlib import nullcontext

import typer

from capsules.cli.failure import INTERRUPTED, CommandError
from capsules.cli.output import Output, pairs_table, say
from service.cli.client import Client
from service.cli.jobs.following import Follower
from service.cli.jobs.replies import Event, Job
from service.cli.jobs.requests import Jobs
from service.cli.jobs.screen import Screen
from service.cli.jobs.times import moment
from service.cli.options import DEFAULT_URL

CANCELLED = 3
"""Exit code where the job that was followed was cancelled."""


def run(client: Client, job: str, output: Output) -> None:
    """Follow a job until it ends.

    Raises:
        UsageError: that is no job's id.
        CommandError: the job failed.
        ServerError: there is no such job, or the server is away for too long.
        typer.Exit: interrupted, or the job was cancelled.
    """
    follow(Jobs(client), job, output, silence=client.timeout)


def follow(jobs: Jobs, job: str, output: Output, *, silence: float) -> None:
    """Show a job's events: above a bar on a terminal, else a line each.

    Args:
        jobs: of the server.
        job: id of the job.
        output: shows them.
        silence: seconds that the server may be silent for.

    Raises:
        CommandError: the job failed.
        ServerError: there is no such job, or the server is away for too long.
        typer.Exit: interrupted, or the job was cancelled.
    """
    try:
        begun = jobs.get(job)
        screen = Screen(begun) if output.human else None
        tell = screen.notice if screen else say
        with screen or nullcontext():
            for happening in Follower(jobs, job, silence=silence, tell=tell):
                if screen is not None:
                    screen.show(happening)
                elif isinstance(happening, Event):
                    write(happening, output)
        conclude(jobs.get(job), jobs.client, output)
    except KeyboardInterrupt:
        say(
            f"Not watching any more; job {job} goes on. Watch it again with: "
            f"{hint(jobs.client, 'watch', job)}",
            style="yellow",
        )
        raise typer.Exit(INTERRUPTED) from None


def write(event: Event, output: Output) -> None:
    """Write an event as a line."""
    if output.as_json:
        typer.echo(event.model_dump_json(ensure_ascii=True))
        return
    at = moment(event.created_at)
    output.write_rows([(event.number, at, event.level, event.type, event.message)])


def conclude(job: Job, client: Client, output: Output) -> None:
    """Tell what a job came to.

    Raises:
        CommandError: it failed.
        typer.Exit: it was cancelled.
    """
    if job.status == "cancelled":
        say(f"The job was cancelled. Take it up again with: {hint(client, 'resume', job.id)}")
        raise typer.Exit(CANCELLED)
    if job.status == "failed":
        code, message = ("job_failed", "The job failed.")
        if job.error is not None:
            code, message = job.error.code, job.error.message
        raise CommandError(
            f"{message} Take it up again with: {hint(client, 'resume', job.id)}", code=code
        )
    if output.human:
        output.console.print(pairs_table("Trained", outcome(job)))


def outcome(job: Job) -> Iterable[tuple[str, object]]:
    """What a job that succeeded came to, as names and values."""
    yield "version", job.fine_tuned_model
    if job.result is not None:
        for name, value in job.result.metrics.items():
            yield name, f"{value:.4f}"
        yield "served", "yes" if job.result.activated else "no"
        yield "because", job.result.reason


def hint(client: Client, command: str, job: str) -> str:
    """The command line of another command on the same job."""
    elsewhere = "" if client.shown == DEFAULT_URL else f" --url {client.shown}"
    return f"capsule jobs {command} {job}{elsewhere}"
