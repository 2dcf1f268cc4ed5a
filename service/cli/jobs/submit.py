"""`capsule jobs submit`: sends rows to be trained on."""

import json
import re
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from capsules.cli.failure import INTERRUPTED, UsageError
from capsules.cli.output import Output, say, warn
from capsules.cli.progress import Bar
from capsules.data.reader import format_of
from service.cli.client import Client, ServerError
from service.cli.jobs.replies import Job
from service.cli.jobs.requests import Jobs
from service.cli.jobs.upload import LARGE_BYTES, Upload
from service.cli.jobs.watch import follow, hint
from service.cli.options import DEFAULT_TIMEOUT_S

KEY = re.compile(r"[!-~]{1,255}")


@dataclass(frozen=True, slots=True)
class Submission:
    """What the command was asked to submit.

    Attributes:
        spec: of the job, as the server takes it.
        files: of rows, by split; None where there is none.
        key: under which the server takes one submission; None makes one.
    """

    spec: Mapping[str, Any]
    files: Mapping[str, Path | None]
    key: str | None


def run(client: Client, submission: Submission, output: Output, *, watch: bool) -> None:
    """Submit, write the job's id, and follow the job if that is wanted.

    Raises:
        UsageError: the key cannot be used.
        DataError: a file's name does not tell its format.
        CommandError: a file cannot be read.
        ServerError: the submission is refused, or there is no server.
        typer.Exit: interrupted, or the job that was followed did not succeed.
    """
    key = str(uuid.uuid4()) if submission.key is None else submission.key
    if not KEY.fullmatch(key):
        raise UsageError(
            f"--idempotency-key {key!r}: give up to 255 visible ASCII characters, without spaces."
        )
    files = {split: path for split, path in submission.files.items() if path is not None}
    for path in files.values():
        format_of(path.name)
    jobs = Jobs(client)
    try:
        job = send(jobs, submission.spec, files, key)
    except ServerError as failure:
        raise detailed(failure) from failure
    except KeyboardInterrupt:
        say(
            "Interrupted; `capsule jobs list` tells whether the job was taken. To repeat the "
            f"command without submitting twice, add --idempotency-key {key}",
            style="yellow",
        )
        raise typer.Exit(INTERRUPTED) from None
    if output.as_json:
        # With the events a document a line.
        document = job.model_dump(mode="json")
        typer.echo(json.dumps(document, indent=None if watch else 2))
    else:
        typer.echo(job.id)
    for warning in job.warnings:
        warn(warning)
    if watch:
        follow(jobs, job.id, output, silence=min(client.timeout, DEFAULT_TIMEOUT_S))
    elif output.human:
        say(f"Follow it with: {hint(client, 'watch', job.id)}")


def send(jobs: Jobs, spec: Mapping[str, Any], files: Mapping[str, Path], key: str) -> Job:
    """Submit; shows how far large files have come.

    Raises:
        CommandError: a file cannot be read.
        ServerError: the submission is refused, or there is no server.
    """
    uploads: dict[str, Upload] = {}
    with ExitStack() as stack:
        for split, path in files.items():
            uploads[split] = stack.enter_context(Upload(path))
        total = sum(upload.size for upload in uploads.values())
        if total >= LARGE_BYTES:
            bar = stack.enter_context(Bar("uploading"))

            def advance() -> None:
                bar.advance(sum(upload.done for upload in uploads.values()), total)

            for upload in uploads.values():
                upload.advanced = advance
        return jobs.submit(spec, uploads, key)


def detailed(failure: ServerError) -> ServerError:
    """A refusal with the rows or options at fault, a line each."""
    return ServerError("\n  ".join([failure.message, *failure.faults]), code=failure.code)
