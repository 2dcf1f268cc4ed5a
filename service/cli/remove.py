"""`capsule rm`: deletes a version of a task, or all of it."""

import re

from rich.text import Text

from capsules.artefact.manifest import TASK_NAME
from capsules.cli.failure import UsageError
from capsules.cli.output import Output, cell
from service.cli.client import Client

REFERENCE = re.compile(rf"({TASK_NAME.pattern})(?:@([1-9]\d{{0,8}}))?")


def parse_reference(reference: str) -> tuple[str, int | None]:
    """A task's name, and the version if one is meant.

    Raises:
        UsageError: it is neither `TASK` nor `TASK@VERSION`.
    """
    match = REFERENCE.fullmatch(reference)
    if match is None:
        raise UsageError(
            f"{reference!r} is neither a task such as trec nor a version such as trec@2.",
            code="invalid_task_name",
        )
    return match[1], int(match[2]) if match[2] else None


def run(client: Client, reference: str, output: Output) -> None:
    """Delete, and show what is gone.

    Raises:
        UsageError: the reference is malformed.
        ServerError: it does not exist, or there is no server.
    """
    task, version = parse_reference(reference)
    removed = client.remove(task, version)
    versions = ",".join(str(one) for one in removed.versions)
    aliases = ",".join(removed.aliases)
    told = f"Deleted {removed.task}, version {versions}" + (f" and alias {aliases}" * bool(aliases))
    output.show(
        document=removed.model_dump(mode="json"),
        rows=[(removed.task, versions, aliases)],
        table=lambda: Text(cell(told) + "."),
    )
