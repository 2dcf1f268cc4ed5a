"""What is asked of a server about jobs."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx2

from capsules.cli.output import say
from service.cli.client import Client, ServerError
from service.cli.jobs.replies import Deleted, Job, JobPage
from service.cli.jobs.upload import Upload
from service.cli.references import parse_job

PATH = "/v1/admin/training/jobs"
PAGE = 100
PAUSES_S = (1.0, 2.0, 4.0)
"""Between attempts to submit; the last one is repeated."""

LOST = frozenset({"connection_broken", "server_timeout"})
"""Codes of failures after which nobody knows whether the server did what it was asked."""

UNDECIDED = LOST | {"idempotency_in_progress"}
"""Codes of failures after which a job may have been taken; asking again under its key tells."""

UNREACHABLE = "server_unreachable"
EVENT_STREAM = "text/event-stream"


class Jobs:
    """The jobs of a server."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def submit(self, spec: Mapping[str, Any], uploads: Mapping[str, Upload], key: str) -> Job:
        """Submit a job; where it is not known whether the server has taken it, ask again.

        Args:
            spec: what to do.
            uploads: rows by split.
            key: under which the server takes one submission.

        Raises:
            CommandError: a file cannot be read.
            ServerError: it is refused, or there is no server.
        """
        end: float | None = None
        pauses = iter(PAUSES_S)
        pause = 0.0
        while True:
            try:
                return self.submit_once(spec, uploads, key)
            except ServerError as failure:
                # A server that was there may be starting again.
                gone = end is not None and failure.code == UNREACHABLE
                again = gone or failure.code in UNDECIDED
                now = self.client.clock()
                end = end or now + self.client.timeout
                pause = next(pauses, pause)
                if not again:
                    raise
                if now + pause >= end:
                    raise repeatable(failure, key) from failure
                say(f"{failure.message} Trying again in {pause:g} s.")
                self.client.sleep(pause)

    def submit_once(self, spec: Mapping[str, Any], uploads: Mapping[str, Upload], key: str) -> Job:
        """Submit a job.

        Raises:
            CommandError: a file cannot be read.
            ServerError: it is refused, or it is not known whether it is taken.
        """
        response = self.client.ask(
            "POST",
            PATH,
            # Before the files, so that what is wrong with it is told before they are sent.
            data={"spec": json.dumps(spec)},
            files={
                split: (upload.name, upload, upload.media_type) for split, upload in uploads.items()
            },
            headers={"Idempotency-Key": key},
        )
        return self.client.read(response, Job)

    def all(
        self, *, task: str | None = None, status: str | None = None, page: int = PAGE
    ) -> Iterator[Job]:
        """Jobs, newest first, asked for by the page.

        Raises:
            ServerError: an argument is refused, or there is no server.
        """
        asked = {"limit": str(page), "task": task, "status": status}
        parameters = {name: value for name, value in asked.items() if value is not None}
        more = True
        while more:
            reply = self.client.ask("GET", PATH, params=parameters)
            found = self.client.read(reply, JobPage)
            yield from found.data
            more = found.has_more and bool(found.data)
            if more:
                parameters["after"] = found.data[-1].id

    def get(self, job: str) -> Job:
        """One job.

        Raises:
            ServerError: it does not exist, or there is no server.
        """
        return self.client.read(self.client.ask("GET", path_of(job)), Job)

    def cancel(self, job: str) -> Job:
        """Cancel a job.

        Raises:
            ServerError: it has ended, does not exist, or there is no server.
        """
        return self.client.read(self.client.ask("POST", f"{path_of(job)}/cancel"), Job)

    def resume(self, job: str) -> Job:
        """Queue an ended job again.

        Raises:
            ServerError: it cannot be resumed, does not exist, or there is no server.
        """
        return self.client.read(self.client.ask("POST", f"{path_of(job)}/resume"), Job)

    def remove(self, job: str) -> Deleted:
        """Delete an ended job.

        Raises:
            ServerError: it has not ended, does not exist, or there is no server.
        """
        return self.client.read(self.client.ask("DELETE", path_of(job)), Deleted)

    @contextmanager
    def stream(
        self, job: str, *, after: str | None, timeout: float
    ) -> Iterator[httpx2.EventSource]:
        """The events of a job as they happen.

        Args:
            job: its id.
            after: id of the last event that is known.
            timeout: seconds without a byte after which the connection counts as lost.

        Raises:
            ServerError: it is refused, or not what our server sends.
            httpx2.HTTPError: there is no connection, or it is lost.
        """
        client = self.client
        headers = {} if after is None else {"Last-Event-ID": after}
        url = f"{client.url}{path_of(job)}/events"
        with client.http.sse(url, headers=headers, timeout=timeout) as source:
            response = source.response
            if not response.is_success:
                response.read()
                raise client.failure_of(response)
            if response.headers.get("Content-Type", "").partition(";")[0] != EVENT_STREAM:
                raise client.not_ours()
            yield source


def path_of(job: str) -> str:
    """Where a job is.

    Raises:
        UsageError: it is no job's id.
    """
    return f"{PATH}/{parse_job(job)}"


def repeatable(failure: ServerError, key: str) -> ServerError:
    """A failure after which the job may have been taken, and how to find out."""
    return ServerError(
        f"{failure.message} To repeat the command without submitting twice, add "
        f"--idempotency-key {key}",
        code=failure.code,
        answered=failure.answered,
        field=failure.field,
    )
