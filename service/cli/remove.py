"""`capsule rm`: deletes a version of a task, or all of it."""

from rich.text import Text

from capsules.cli.output import Output, cell
from service.cli.client import Client
from service.cli.references import parse_reference


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
