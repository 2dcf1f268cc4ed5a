"""`capsule push`: uploads capsule files."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.table import Table
from rich.text import Text

from capsules.artefact.disk import read_bytes
from capsules.cli.failure import FAILURE
from capsules.cli.output import DIGEST_CHARACTERS, Output, cell, complain
from capsules.errors import ArtefactError
from service.cli.client import Client, ServerError
from service.cli.replies import Stored

STYLES = {"created": "green", "unchanged": "", "failed": "red"}


@dataclass(frozen=True, slots=True)
class Pushed:
    """What became of a file."""

    file: Path
    state: str
    stored: Stored | None = None
    failure: ServerError | ArtefactError | None = None

    @property
    def document(self) -> dict[str, Any]:
        """What is known of it, for JSON."""
        known: dict[str, Any] = {"file": str(self.file), "status": self.state}
        if self.stored is not None:
            # The manifest is in the file; `capsule inspect` shows it.
            known |= self.stored.model_dump(mode="json", exclude={"manifest"})
        if self.failure is not None:
            known["error"] = {"code": self.failure.code, "message": self.failure.message}
        return known

    @property
    def row(self) -> tuple[object, ...]:
        """File, state, task, version, digest and error code."""
        stored, failure = self.stored, self.failure
        return (
            self.file,
            self.state,
            stored and stored.task,
            stored and stored.version,
            stored and stored.digest,
            failure and failure.code,
        )


def run(client: Client, files: Sequence[Path], output: Output) -> None:
    """Upload files, one after the other; one that is refused does not stop the others.

    Raises:
        typer.Exit: a file was not taken.
    """
    pushed: list[Pushed] = []
    for file in files:
        pushed.append(push(client, file))
        failure = pushed[-1].failure
        if isinstance(failure, ArtefactError):
            complain(failure.message, failure.code)
        elif failure is not None:
            complain(f"{file}: {failure.message}", failure.code)
            if not failure.answered:
                break
    output.show(
        document=[one.document for one in pushed],
        rows=[one.row for one in pushed],
        table=lambda: table(pushed),
    )
    if any(one.failure for one in pushed):
        raise typer.Exit(FAILURE)


def push(client: Client, file: Path) -> Pushed:
    """Upload one file."""
    try:
        stored, created = client.upload(read_bytes(file))
    except (ServerError, ArtefactError) as failure:
        return Pushed(file, "failed", failure=failure)
    return Pushed(file, "created" if created else "unchanged", stored=stored)


def table(pushed: Sequence[Pushed]) -> Table:
    """The files, for people."""
    grid = Table()
    for heading in ("file", "", "task", "version", "digest"):
        grid.add_column(heading)
    for one in pushed:
        file, state, task, version, digest, _ = (cell(value) for value in one.row)
        styled = Text(state, style=STYLES[state])
        grid.add_row(file, styled, task, version, digest[:DIGEST_CHARACTERS])
    return grid
