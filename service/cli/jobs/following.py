"""Follows a job's events through whatever happens to the connection."""

from collections.abc import Callable, Iterator
from typing import Never

import httpx2
from pydantic import ValidationError

from capsules.cli.output import say
from service.cli.client import PASSING, ServerError
from service.cli.jobs.replies import Event, Progress
from service.cli.jobs.requests import LOST, UNREACHABLE, Jobs

PROGRESS = "progress"
"""Type of the messages that tell how far a job is, in between its events."""

DONE = "done"
"""Type of the last message, after which nothing more will happen."""

DONE = "done"
"""Type of the last message, after the last event of a job that has ended."""

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 5.0

Happening = Event | Progress


class Follower:
    """Every event of a job, once and in order, and how far it is, until it has ended.

    A lost connection is made again, and goes on after the last event that came, so that what
    happened in between is told then.
    """

    def __init__(
        self, jobs: Jobs, job: str, *, silence: float, tell: Callable[[str], None] = say
    ) -> None:
        """Prepare to follow; nothing is asked yet.

        Args:
            jobs: of the server.
            job: id of the job.
            silence: seconds that the server may be silent for.
            tell: says that the connection was lost.
        """
        self.jobs = jobs
        self.job = job
        self.tell = tell
        self.client = jobs.client
        self.silence = silence
        # A connection may be dead without a sign; the other half is left to make a new one.
        self.patience = silence / 2
        self.heard = self.client.clock()
        self.pause = FIRST_PAUSE_S
        self.number = 0
        self.after: str | None = None
        self.connected = self.troubled = self.ended = False

    def __iter__(self) -> Iterator[Happening]:
        """Follow.

        Raises:
            ServerError: the job is not there any more, or the server is silent for too long.
        """
        while True:
            self.connected = False
            try:
                yield from self.listen()
                if self.ended:
                    return
                self.heard = self.client.clock()
                self.ended = self.jobs.get(self.job).ended
                # It was closed for another reason. If it has ended by now, then once more.
                if not self.ended:
                    self.client.sleep(FIRST_PAUSE_S)
                continue
            except httpx2.HTTPError as error:
                trouble = f"The connection to {self.client.shown} was lost ({told(error)})."
                if self.connected:
                    self.heard = self.client.clock()
                    self.heard -= self.patience if isinstance(error, httpx2.ReadTimeout) else 0
            except ServerError as failure:
                if not passes(failure):
                    raise
                if failure.code in PASSING:
                    self.heard = self.client.clock()
                trouble = failure.message
            self.wait(trouble)

    def listen(self) -> Iterator[Happening]:
        """What one connection brings, until the server closes it.

        Raises:
            ServerError: the server refuses, or is not ours.
            httpx2.HTTPError: the connection is lost.
        """
        with self.jobs.stream(self.job, after=self.after, timeout=self.patience) as source:
            self.connected = True
            self.heard = self.client.clock()
            for message in source:
                if message.event == DONE:
                    self.ended = True
                    return
                found = self.read(message)
                if isinstance(found, Event):
                    if found.number <= self.number:
                        continue
                    self.number, self.after = found.number, message.id or str(found.number)
                if found is not None:
                    self.troubled, self.pause = False, FIRST_PAUSE_S
                    yield found

    def read(self, message: httpx2.ServerSentEvent) -> Happening | None:
        """What a message says; None where it is only there to keep the connection.

        Raises:
            ServerError: it is not what our server sends.
        """
        if not message.data or message.event == DONE:
            return None
        shape = Progress if message.event == PROGRESS else Event
        try:
            return shape.model_validate_json(message.data)
        except ValidationError as error:
            raise self.client.not_ours() from error

    def wait(self, trouble: str) -> None:
        """Wait before the next attempt, a little longer each time.

        Raises:
            ServerError: the server has been silent for too long.
        """
        if self.client.clock() + self.pause - self.heard > self.silence:
            self.give_up(trouble)
        if not self.troubled:
            self.tell(f"{trouble} Connecting again.")
            self.troubled = True
        self.client.sleep(self.pause)
        self.pause = min(2 * self.pause, LONGEST_PAUSE_S)

    def give_up(self, trouble: str) -> Never:
        """Fail, saying why.

        Raises:
            ServerError: always.
        """
        raise ServerError(
            f"{trouble} Nothing more was heard for {self.silence:g} s. The job is not "
            "stopped by that; watch it again once the server is back, or raise --timeout.",
            code="server_timeout",
        )


def passes(failure: ServerError) -> bool:
    """Whether asking again may help: the server is away, busy, or on its way out or in."""
    away = failure.code == UNREACHABLE or failure.code in LOST
    return away or (failure.status or 0) >= httpx2.codes.INTERNAL_SERVER_ERROR


def told(error: httpx2.HTTPError) -> str:
    """What is known of a lost connection."""
    return str(error) or type(error).__name__
