"""What a server answers about jobs, for tests without one."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx2

from service.cli.client import Client
from service.cli.jobs.requests import Jobs

URL = "http://server.test"
JOB = "ftjob-0123456789abcdef01234567"
TIMEOUT_S = 10.0


class Clock:
    """Time that passes only while someone sleeps.

    Attributes:
        now: in seconds.
        slept: how long each time.
    """

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def jobs_of(answer: Callable[[httpx2.Request], httpx2.Response], clock: Clock) -> Jobs:
    """The jobs of a server that answers so."""
    return Jobs(
        Client(
            URL,
            timeout=TIMEOUT_S,
            transport=httpx2.MockTransport(answer),
            clock=clock,
            sleep=clock.sleep,
        )
    )


def a_job(**changes: Any) -> dict[str, Any]:
    """A job that is running, or is otherwise as told."""
    return {
        "object": "fine_tuning.job",
        "id": JOB,
        "task": "tickets",
        "status": "running",
        "created_at": 1_800_000_000,
        "hyperparameters": {"n_epochs": 20},
        **changes,
    }


def an_event(number: int, **changes: Any) -> dict[str, Any]:
    """An event of that number."""
    return {
        "object": "fine_tuning.job.event",
        "id": f"ftevent-{number}",
        "number": number,
        "created_at": 1_800_000_000 + number,
        "level": "info",
        "type": "message",
        "message": f"Event {number}.",
        "data": {},
        **changes,
    }


def a_report(epoch: int, **changes: Any) -> dict[str, Any]:
    """A finished epoch."""
    return {
        "epoch": epoch,
        "train_loss": 1 / epoch,
        "validation_loss": 2 / epoch,
        "validation_accuracy": 1 - 0.5 / epoch,
        "best": True,
        "seconds": 1.5,
        **changes,
    }


def a_problem(status: int, code: str, **headers: str) -> httpx2.Response:
    """A refusal."""
    document = {"detail": "What happened.", "code": code}
    return httpx2.Response(status, json=document, headers=headers)


def message(event: str, data: Any, number: int | None = None) -> bytes:
    """One message of an event stream."""
    lines = [f"event: {event}", f"data: {json.dumps(data)}"]
    if number is not None:
        lines.insert(0, f"id: {number}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def events(*numbers: int) -> bytes:
    """Messages of events of those numbers."""
    return b"".join(message("message", an_event(number), number) for number in numbers)


def a_stream(*parts: bytes | Exception) -> httpx2.Response:
    """A stream of events that brings these parts, and fails where one is an exception."""

    def bring() -> Iterator[bytes]:
        for part in parts:
            if isinstance(part, Exception):
                raise part
            yield part

    headers = {"Content-Type": "text/event-stream; charset=utf-8"}
    return httpx2.Response(200, headers=headers, content=bring())
