"""Talks to a server, and turns whatever goes wrong into one failure with a remedy."""

import ipaddress
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx2
from pydantic import ValidationError

from capsules.cli.failure import CommandError, UsageError
from capsules.cli.output import say
from service.cli.options import DEFAULT_URL
from service.cli.replies import (
    Classified,
    Problem,
    Removed,
    Reply,
    Row,
    Stored,
    Task,
    TaskDetail,
    TaskPage,
)

PAGE = 500
PASSING = frozenset({"warming", "queue_full", "busy"})
"""Codes of refusals that end by themselves within seconds."""

Text = str | Mapping[str, str]
ReplyT = TypeVar("ReplyT", bound=Reply)


class ServerError(CommandError):
    """The server refused, failed, or could not be asked.

    Attributes:
        answered: whether it was asked and gave a reason of its own.
        field: the first part of the request at fault, if it named one.
        status: of an HTTP answer that was no success.
        faults: what is wrong in detail, where the message sums it up.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str,
        answered: bool = False,
        field: str | None = None,
        status: int | None = None,
        faults: Sequence[str] = (),
    ) -> None:
        super().__init__(message, code=code)
        self.answered = answered
        self.field = field
        self.status = status
        self.faults = tuple(faults)


class Client:
    """A server, seen from a command.

    A server that is warming up or full is asked again, as it says, until time is up.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float,
        transport: httpx2.BaseTransport | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Prepare to ask; nothing is sent yet.

        Args:
            url: of the server, with a path where it is behind one.
            timeout: seconds for each thing asked, waiting for the server to take it included.
            transport: carries the requests; for tests.
            clock: counts seconds.
            sleep: waits so many.

        Raises:
            UsageError: the URL is none.
        """
        self.url = checked(url)
        self.shown = without_secrets(self.url)
        self.timeout = timeout
        self.clock = clock
        self.sleep = sleep
        # A proxy set for the internet does not lead to this machine.
        self.http = httpx2.Client(transport=transport, trust_env=not is_local(self.url))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.http.close()

    def upload(self, data: bytes) -> tuple[Stored, bool]:
        """Upload a capsule file.

        Returns:
            The version, and whether it is new.

        Raises:
            ServerError: it is refused, or there is no server.
        """
        headers = {"Content-Type": "application/octet-stream"}
        response = self.ask("POST", "/v1/capsules", content=data, headers=headers)
        return self.read(response, Stored), response.status_code == httpx2.codes.CREATED

    def tasks(self) -> Iterator[Task]:
        """Every task, by name, page after page.

        Raises:
            ServerError: there is no server, or it fails.
        """
        after, more = "", True
        while more:
            parameters = {"limit": str(PAGE), **({"after": after} if after else {})}
            page = self.read(self.ask("GET", "/v1/capsules", params=parameters), TaskPage)
            yield from page.data
            more = page.has_more and bool(page.data)
            after = page.data[-1].task if page.data else after

    def task(self, name: str) -> TaskDetail:
        """A task with its versions.

        Raises:
            ServerError: it does not exist, or there is no server.
        """
        return self.read(self.ask("GET", f"/v1/capsules/{quote(name, safe='')}"), TaskDetail)

    def classify(
        self, task: str, texts: Sequence[Text], *, top_k: int | None, truncate: bool
    ) -> list[Row]:
        """Classify texts under one task, in one request.

        Raises:
            ServerError: it is refused as a whole, or there is no server.
        """
        body: dict[str, Any] = {"task": task, "text": list(texts), "truncate": truncate}
        if top_k is not None:
            body["top_k"] = top_k
        rows = self.read(self.ask("POST", "/v1/classify", json=body), Classified).data
        if len(rows) != len(texts):
            raise self.not_ours()
        return rows

    def remove(self, task: str, version: int | None) -> Removed:
        """Delete a version of a task, or all of it.

        Raises:
            ServerError: it does not exist, or there is no server.
        """
        path = f"/v1/capsules/{quote(task, safe='')}"
        if version is not None:
            path += f"/versions/{version}"
        return self.read(self.ask("DELETE", path), Removed)

    def ask(self, method: str, path: str, **content: Any) -> httpx2.Response:
        """Send a request until it is taken.

        Raises:
            ServerError: it is refused, or time is up.
        """
        end = self.clock() + self.timeout
        while True:
            response = self.attempt(method, path, max(end - self.clock(), 0.001), **content)
            if response.is_success:
                return response
            failure = self.failure_of(response)
            pause = retry_after(response)
            passing = failure.code in PASSING and pause is not None
            if not passing or pause is None or self.clock() + pause >= end:
                raise failure
            say(f"{failure.message} Trying again in {pause:g} s.")
            self.sleep(pause)

    def attempt(self, method: str, path: str, timeout: float, **content: Any) -> httpx2.Response:
        """Send a request once.

        Raises:
            ServerError: there is no answer.
        """
        try:
            return self.http.request(method, self.url + path, timeout=timeout, **content)
        except httpx2.ConnectError as error:
            raise ServerError(
                f"No server answers at {self.shown} ({error}). Start one with `capsule serve`, or "
                "name another with --url or CAPSULE_URL.",
                code="server_unreachable",
            ) from error
        except httpx2.TimeoutException as error:
            raise ServerError(
                f"{self.shown} did not answer within {self.timeout:g} s; raise --timeout, or ask "
                "for less at a time.",
                code="server_timeout",
            ) from error
        except httpx2.HTTPError as error:
            raise ServerError(
                f"The connection to {self.shown} broke ({error}). What was asked for may have been "
                "done; see `capsule list`.",
                code="connection_broken",
            ) from error

    def read(self, response: httpx2.Response, shape: type[ReplyT]) -> ReplyT:
        """A reply's body.

        Raises:
            ServerError: it is not what our server sends.
        """
        try:
            return shape.model_validate_json(response.content)
        except ValidationError as error:
            raise self.not_ours() from error

    def failure_of(self, response: httpx2.Response) -> ServerError:
        """What an answer that is no success means."""
        status = response.status_code
        try:
            problem = Problem.model_validate_json(response.content)
        except ValidationError:
            return ServerError(
                f"{self.shown} answered with status {status}, but not as a capsule server does; "
                "check --url and CAPSULE_URL.",
                code="unexpected_reply",
                status=status,
            )
        # The server's log has more to say about a fault of its own.
        request = f" (request {problem.request_id})" if status == 500 else ""
        return ServerError(
            problem.detail + request,
            code=problem.code,
            answered=True,
            field=problem.errors[0].field if problem.errors else None,
            status=status,
            faults=[
                f"{fault.field}: {fault.message}" if fault.field else fault.message
                for fault in problem.errors
                if fault.message not in problem.detail
            ],
        )

    def not_ours(self) -> ServerError:
        """The failure for an answer in an unknown shape."""
        return ServerError(
            f"The answer of {self.shown} is not that of a capsule server; check --url and "
            "CAPSULE_URL.",
            code="unexpected_reply",
        )


def checked(url: str) -> str:
    """A URL without its last slash.

    Raises:
        UsageError: it is not one of a server.
    """
    try:
        parsed = httpx2.URL(url)
        # As the look-up of the name will, where it would be too late to say so.
        parsed.host.encode("idna")
    except (httpx2.InvalidURL, UnicodeError) as error:
        raise UsageError(
            f"--url or CAPSULE_URL is no URL ({error}); give one such as {DEFAULT_URL}."
        ) from error
    # The URL may hold a password, so it is not repeated.
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise UsageError(f"--url or CAPSULE_URL is not HTTP; give one such as {DEFAULT_URL}.")
    if parsed.query or parsed.fragment:
        raise UsageError("--url or CAPSULE_URL has a query or a fragment; leave that out.")
    return url.rstrip("/")


def without_secrets(url: str) -> str:
    """A URL without a user's name and password, to show."""
    return str(httpx2.URL(url).copy_with(username=None, password=None))


def is_local(url: str) -> bool:
    """Whether a URL is of this machine."""
    host = httpx2.URL(url).host
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def retry_after(response: httpx2.Response) -> float | None:
    """The seconds after which the server wants to be asked again, if it says so."""
    header = response.headers.get("Retry-After", "")
    return float(header) if header.isdecimal() else None
