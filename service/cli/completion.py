"""Completes task names from the server that a command would ask."""

import typer

from capsules.cli.failure import CommandError
from service.cli.client import Client
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
