"""`POST /v1/classify`."""

from fastapi import APIRouter, Request, Response

from service.api.classify.schemas import (
    EXAMPLES,
    VALUES,
    VALUES_A_ROW,
    ClassifyReply,
    ClassifyRequest,
)
from service.api.classify.service import classify
from service.body import JsonBody, json_content
from service.dependencies import live_of
from service.disconnect import while_connected
from service.engine.records import Timings
from service.errors import (
    BadRequest,
    Conflict,
    DeadlineExceeded,
    NotFound,
    PayloadTooLarge,
    TooManyRequests,
    Unavailable,
    Unprocessable,
    UnsupportedMediaType,
)
from service.lean import JsonReply, LeanRoute
from service.notes import notes_of
from service.problems import responses

BODY = JsonBody(ClassifyRequest)

router = APIRouter(prefix="/v1/classify", tags=["classify"], route_class=LeanRoute)


@router.post(
    "",
    summary="Classify texts",
    openapi_extra=json_content(ClassifyRequest, EXAMPLES),
    responses={
        200: {
            "model": ClassifyReply,
            "description": "An answer for each row; where there are several, one that failed has "
            "an `error` instead.",
            "headers": {
                "Server-Timing": {
                    "description": "Milliseconds spent on `tokenise`, `queue` and `forward`.",
                    "schema": {"type": "string"},
                }
            },
        },
        **responses(
            BadRequest,
            NotFound,
            Conflict,
            PayloadTooLarge,
            UnsupportedMediaType,
            Unprocessable,
            TooManyRequests,
            Unavailable,
            DeadlineExceeded,
        ),
    },
)
async def post(request: Request) -> Response:
    """Classify one or many texts under one or many tasks, in one batch.

    Several rows are answered together: one that cannot be has an `error` in its place, and the
    status is 200. The only row's error is the response's.
    """
    live = live_of(request)
    warm = live.require_warm()
    settings = live.settings
    body = await BODY.read(request, VALUES + VALUES_A_ROW * settings.max_texts)
    scope = request.scope
    caller = live.callers.key(scope)
    classified = await while_connected(
        scope["state"], classify(body, warm, settings, notes_of(scope), caller)
    )
    for code in classified.row_errors:
        live.metrics.row_refused(code)
    if classified.truncated:
        live.metrics.rows_truncated(classified.truncated)
    return JsonReply(classified.content, (b"server-timing", server_timing(classified.timings)))


def server_timing(timings: Timings) -> bytes:
    """The stages in milliseconds, as browsers and tracing tools read them."""
    return b"tokenise;dur=%.3f, queue;dur=%.3f, forward;dur=%.3f" % (
        timings.tokenise * 1000,
        timings.queue * 1000,
        timings.forward * 1000,
    )
