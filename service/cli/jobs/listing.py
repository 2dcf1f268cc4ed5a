"""`capsule jobs list`: the jobs of a server."""

import time
from collections.abc import Sequence
from itertools import islice

from rich.table import Table
from rich.text import Text

from capsules.cli.output import Output, cell, count
from service.cli.client import Client
from service.cli.jobs.replies import Job
from service.cli.jobs.requests import PAGE, Jobs
from service.cli.jobs.times import moment, span

STYLES = {"running": "cyan", "succeeded": "green", "failed": "red", "cancelled": "yellow"}


def run(
    client: Client, output: Output, *, task: str | None, status: str | None, limit: int | None
) -> None:
    """Show jobs, newest first.

    Args:
        client: asks the server.
        output: shows them.
        task: only jobs of this task.
        status: only jobs that are there.
        limit: most jobs to show; None for all.

    Raises:
        ServerError: an argument is refused, or there is no server.
    """
    page = min(limit or PAGE, PAGE)
    jobs = list(islice(Jobs(client).all(task=task, status=status, page=page), limit))
    output.show(
        document=[job.model_dump(mode="json") for job in jobs],
        rows=[row(job) for job in jobs],
        table=lambda: table(jobs, now=time.time()),
    )


def row(job: Job) -> tuple[object, ...]:
    """Id, task, status, epoch, most epochs, best accuracy, creation."""
    return (
        job.id,
        job.task,
        job.status,
        job.epoch,
        job.epochs,
        job.accuracy,
        moment(job.created_at),
    )


def table(jobs: Sequence[Job], *, now: float) -> Table:
    """The jobs, for people."""
    grid = Table(caption=count(len(jobs), "job"), caption_justify="left")
    for heading in ("job", "task", "status", "epoch", "accuracy", "age"):
        grid.add_column(heading, no_wrap=heading != "task")
    for job in jobs:
        accuracy = job.accuracy
        grid.add_row(
            cell(job.id),
            cell(job.task),
            Text(cell(place(job)), style=STYLES.get(job.status, "")),
            "" if job.epochs is None else f"{job.epoch}/{job.epochs}",
            "" if accuracy is None else f"{accuracy:.4f}",
            span(now - job.created_at),
        )
    return grid


def place(job: Job) -> str:
    """Where a job is, and how many are before it."""
    return job.status if job.queue_position is None else f"{job.status} ({job.queue_position})"
