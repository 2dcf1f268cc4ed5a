"""Answers a request: plan the rows, resolve their tasks, ask the engine, compose the reply."""

import asyncio
import time
from collections.abc import Mapping
from functools import partial

from service.api.classify.reply import Classified, at, compose
from service.api.classify.rows import Plan, Row, plan_rows
from service.api.classify.schemas import ClassifyRequest
from service.api.classify.size import check_size
from service.engine.records import NOTHING_ASKED, RowRequest, Served
from service.errors import DeadlineExceeded, ServiceError, Unprocessable
from service.notes import RequestNotes
from service.problems import Fault, InvalidRequest
from service.settings import Settings
from service.state import Warm

# Scores whose reply is put together on the event loop: a millisecond's work.
LARGE_SCORES = 4096


async def classify(
    request: ClassifyRequest, warm: Warm, settings: Settings, notes: RequestNotes, caller: str
) -> Classified:
    """Answer a request.

    Args:
        request: as it came, of the right types.
        warm: what answers.
        settings: the limits.
        notes: get the rows and tasks; their start is when the time limit begins.
        caller: key of who asks; see `service.callers`.

    Raises:
        ServiceError: the request as a whole, or its only row, cannot be answered.
    """
    timeout = time_limit(request, settings)
    plan = plan_rows(request, settings.max_texts)
    notes.rows = len(plan.rows)
    found = resolve(plan, warm)
    notes.tasks = tuple({one.task for one in found.values() if isinstance(one, Served)})

    top_k = request.get("top_k")
    large = check_size(plan, found, top_k, settings.max_reply_bytes) > LARGE_SCORES

    truncate = request.get("truncate", True)
    prepared = [prepare(row, found[row.reference], settings, truncate) for row in plan.rows]
    accepted = [row for row in prepared if isinstance(row, RowRequest)]
    outcome = NOTHING_ASKED
    if accepted:
        # Nothing may be awaited between resolving and this: a capsule might go meanwhile.
        elapsed = time.perf_counter() - notes.started
        try:
            outcome = await warm.engine.classify(
                accepted, timeout=max(timeout - elapsed, 0.0), caller=caller
            )
        except DeadlineExceeded as error:
            raise late(timeout, settings) from error
    answers = iter(outcome.rows)
    results = [next(answers) if isinstance(row, RowRequest) else row for row in prepared]
    put_together = partial(
        compose, plan, found, results, outcome.timings, warm.backbone.id, top_k, large=large
    )
    return await asyncio.to_thread(put_together) if large else put_together()


def time_limit(request: ClassifyRequest, settings: Settings) -> float:
    """A request's time limit in seconds.

    Raises:
        InvalidRequest: it is above the server's.
    """
    asked = request.get("timeout_ms", settings.timeout_ms)
    if asked > settings.timeout_ms:
        raise InvalidRequest(
            [
                Fault(
                    "timeout_ms",
                    f"{asked if asked < 10**18 else 'This'} is above the server's limit of "
                    f"{settings.timeout_ms} ms",
                    "timeout_too_long",
                )
            ]
        )
    return asked / 1000


def late(timeout: float, settings: Settings) -> DeadlineExceeded:
    """The error for a request whose time is up, told as the limit that its client knows.

    Args:
        timeout: that limit, in seconds.
        settings: the server's own.
    """
    limit = round(timeout * 1000)
    more = "allow more with `timeout_ms`, " if limit < settings.timeout_ms else ""
    return DeadlineExceeded(
        f"The answer was not ready within the time limit of {limit} ms; {more}send fewer texts at "
        "once, or try again when the server is less busy.",
        code="deadline_exceeded",
    )


def resolve(plan: Plan, warm: Warm) -> dict[str, Served | ServiceError]:
    """The capsule of each reference; looked up once, so that a request sees one version of it.

    Raises:
        ServiceError: the task of all rows cannot be classified with.
    """
    found: dict[str, Served | ServiceError] = {}
    for row in plan.rows:
        if row.reference not in found:
            try:
                found[row.reference] = warm.registry.resolve(row.reference)
            except ServiceError as error:
                if plan.model is not None:
                    raise at(error, row.source) from error
                found[row.reference] = error
    return found


def prepare(
    row: Row, capsule: Served | ServiceError, settings: Settings, truncate: bool
) -> RowRequest | ServiceError:
    """A row for the engine, or why it never gets there."""
    if isinstance(capsule, ServiceError):
        return capsule
    inputs = named(row.text, capsule)
    characters = capsule.template.length(inputs)
    if characters > settings.max_characters:
        return Unprocessable(
            f"The text has {characters} characters in the template of its task, and the limit is "
            f"{settings.max_characters}; shorten it.",
            code="text_too_long",
        )
    return RowRequest(capsule=capsule, inputs=inputs, truncate=truncate)


def named(text: str | Mapping[str, str], capsule: Served) -> Mapping[str, str]:
    """The inputs of the capsule's template; a bare string is its only one."""
    if not isinstance(text, str):
        return text
    fields = capsule.template.fields
    return {fields[0] if len(fields) == 1 else "text": text}
