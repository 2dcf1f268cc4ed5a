"""Events as Server-Sent Events."""

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager

from fastapi.sse import KEEPALIVE_COMMENT, EventSourceResponse, format_sse_event
from pydantic import BaseModel
from starlette.types import Receive, Scope, Send

from service.api.jobs.service import ended_of, event_of, progress_of
from service.desk.feed import Ended, Feed, Quiet
from service.jobs.records import Event, Progress

MEDIA_TYPE = EventSourceResponse.media_type
RECONNECT_MS = 2000
"""How long a browser waits before it comes back."""

PROGRESS = "progress"
DONE = "done"

HEADERS = {
    "Cache-Control": "no-store",
    # Or a proxy would wait for more of it.
    "X-Accel-Buffering": "no",
}


class EventStream(EventSourceResponse):
    """A job's events as they happen."""

    def __init__(self, feed: Feed, place: AbstractContextManager[None]) -> None:
        """Prepare a stream.

        Args:
            feed: what is sent.
            place: is held for as long as it is sent.
        """
        super().__init__(encoded(feed), headers=HEADERS)
        self.place = place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it.

        Raises:
            Unavailable: there is no place; nothing was sent.
        """
        with self.place:
            await super().__call__(scope, receive, send)


async def encoded(feed: Feed) -> AsyncIterator[bytes]:
    """What a feed tells, as it is sent; only events have numbers, and can be gone on after."""
    # At once, so that the client knows that it is heard.
    yield KEEPALIVE_COMMENT
    retry: int | None = RECONNECT_MS
    async for told in feed.follow():
        if isinstance(told, Quiet):
            yield KEEPALIVE_COMMENT
            continue
        number = str(told.number) if isinstance(told, Event) else None
        name, data = message_of(feed.job, told)
        yield format_sse_event(event=name, data_str=data.model_dump_json(), id=number, retry=retry)
        retry = None


def message_of(job: str, told: Event | Progress | Ended) -> tuple[str, BaseModel]:
    """The type and content of a message.

    Args:
        job: id of the job.
        told: what there is to say.
    """
    if isinstance(told, Event):
        return told.type, event_of(told)
    if isinstance(told, Progress):
        return PROGRESS, progress_of(told)
    return DONE, ended_of(job, told.job)
