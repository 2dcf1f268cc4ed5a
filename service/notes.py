"""What is learned about a request while it is served; logged and counted at its end."""

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

KEY = "notes"
FAULT = "fault"
"""Where the HTTP protocol leaves, in a scope's state, why it could not read the request."""

ANSWER = "answer"
"""Where a scope's state has an :data:`Answer`, if the server gives one."""

Answer = Callable[[MutableMapping[str, Any], bytes, bytes], bool]
"""Sends a whole reply of 200, for a scope, of header lines and a content; tells whether it has.

Where it has not, the reply goes in two messages as any application's does, which takes longer.
"""


@dataclass(slots=True)
class RequestNotes:
    """Notes on one request.

    Attributes:
        request_id: names it in logs, errors and the reply's header.
        started: when it arrived, on the clock of `time.perf_counter`.
        rows: texts to classify, fan-out included.
        tasks: the distinct known tasks it asked for.
        code: of the error it was answered with, or None.
    """

    request_id: str
    started: float
    rows: int = 0
    tasks: tuple[str, ...] = ()
    code: str | None = None


def notes_of(scope: MutableMapping[str, Any]) -> RequestNotes:
    """The notes that the outermost middleware opened for a request."""
    notes: RequestNotes = scope["state"][KEY]
    return notes
