"""Completes names of tasks and ids of jobs from the server that a command would ask."""

from itertools import islice

import typer

from capsules.cli.failure import CommandError
from service.cli.client import Client
from service.cli.jobs.requests import PAGE, Jobs
from service.cli.options import DEFAULT_URL

PATIENCE_S = 1.0


def task_names(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """The tasks that start so, each with its description; none where there is no server."""
    url = context.params.get("url") or DEFAULT_URL
    try:
        with Client(url, timeout=PATIENCE_S) as client:
            return [
                (task.task, task.description)
                for task in client.tasks()
                if task.task.startswith(incomplete)
            ]
    except CommandError:
        return []


def job_ids(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """The newest jobs that start so, each with its task and status; none without a server."""
    url = context.params.get("url") or DEFAULT_URL
    try:
        with Client(url, timeout=PATIENCE_S) as client:
            return [
                (job.id, f"{job.task}, {job.status}")
                for job in islice(Jobs(client).all(), PAGE)
                if job.id.startswith(incomplete)
            ]
    except CommandError:
        return []
