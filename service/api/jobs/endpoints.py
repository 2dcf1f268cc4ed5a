"""Training jobs: submitted, listed, followed, cancelled, resumed and deleted."""

from typing import Annotated

from fastapi import APIRouter, Header, Request, Response

from service.api.jobs.schemas import (
    AfterEvent,
    AfterJob,
    EventLimit,
    IdempotencyKey,
    JobDeleted,
    JobEventList,
    JobLimit,
    JobPath,
    LastEventId,
    StatusFilter,
    Streamed,
    TaskFilter,
    TrainingJob,
    TrainingJobList,
)
from service.api.jobs.service import Shapes, event_of
from service.api.jobs.stream import MEDIA_TYPE, EventStream
from service.api.jobs.upload import DOCUMENTATION, submitted
from service.dependencies import LiveDep, WarmDep
from service.desk.feed import Feed
from service.disconnect import while_connected
from service.errors import (
    BadRequest,
    Conflict,
    DeadlineExceeded,
    NotFound,
    PayloadTooLarge,
    Unavailable,
    Unprocessable,
    UnsupportedMediaType,
)
from service.problems import responses

router = APIRouter(prefix="/v1/admin/training/jobs", tags=["training"])

Accept = Annotated[str, Header(include_in_schema=False)]

LOCATION = {"description": "Where the job is.", "schema": {"type": "string"}}
REPLAYED = {
    "description": "`true` where the job came of an earlier request under this key.",
    "schema": {"type": "string", "enum": ["true"]},
}


@router.post(
    "",
    summary="Submit a training job",
    status_code=202,
    openapi_extra=DOCUMENTATION,
    responses={
        202: {
            "description": "The rows were checked and kept; the job is queued.",
            "headers": {"Location": LOCATION, "Idempotent-Replayed": REPLAYED},
        },
        **responses(
            BadRequest,
            Conflict,
            PayloadTooLarge,
            UnsupportedMediaType,
            Unprocessable,
            Unavailable,
            DeadlineExceeded,
        ),
    },
)
async def submit(
    request: Request,
    response: Response,
    live: LiveDep,
    warm: WarmDep,
    idempotency_key: IdempotencyKey = None,
) -> TrainingJob:
    """Check labelled rows, and queue a job that trains a capsule on them.

    Once this answers, the rows are on disk and the job will be done, whatever becomes of the
    server; what is refused leaves no trace. The result is a version of the task.
    """
    desk = warm.jobs
    limit = live.settings.max_body_bytes
    async with submitted(request, desk, idempotency_key, limit) as submission:
        job, is_new = await while_connected(request.scope["state"], desk.submit(submission))
    response.headers["Location"] = f"{router.prefix}/{job.id}"
    if not is_new:
        response.headers["Idempotent-Replayed"] = "true"
    return Shapes(warm).job(job)


@router.get(
    "",
    summary="List training jobs",
    response_class=Response,
    responses={
        200: {
            "description": "One page of jobs, newest first.",
            "model": TrainingJobList,
        },
        **responses(NotFound, Unprocessable, Unavailable),
    },
)
async def list_jobs(
    warm: WarmDep,
    after: AfterJob = None,
    limit: JobLimit = 20,
    status: StatusFilter = None,
    task: TaskFilter = None,
) -> Response:
    """One page of the jobs, newest first."""
    desk = warm.jobs
    jobs, more = await desk.ask(desk.ledger.page, after or None, limit, status, task)
    page = await desk.reading.run(None, Shapes(warm).page, jobs, more=more)
    return Response(page, media_type="application/json")


@router.get(
    "/{job}",
    summary="Describe a training job",
    responses=responses(NotFound, Unprocessable, Unavailable),
)
async def describe(job: JobPath, warm: WarmDep) -> TrainingJob:
    """A job: where it is, how far it has come, and what it came to."""
    return Shapes(warm).job(await warm.jobs.get(job))


@router.get(
    "/{job}/events",
    summary="Follow a training job",
    response_class=Response,
    responses={
        200: {
            "description": "One page of events, oldest first; or, where they are streamed, each as "
            "it happens under its number as `id`, with `progress` in between, and `done` in the "
            "end.",
            "model": JobEventList,
            "content": {MEDIA_TYPE: {"schema": {"type": "string"}}},
        },
        **responses(NotFound, Unprocessable, Unavailable),
    },
)
async def events(
    job: JobPath,
    live: LiveDep,
    warm: WarmDep,
    after: AfterEvent = 0,
    limit: EventLimit = 100,
    stream: Streamed = None,
    last_event_id: LastEventId = 0,
    accept: Accept = "",
) -> Response:
    """What has happened to a job, by the page or as it happens."""
    desk = warm.jobs
    known = max(after, last_event_id)
    wanted = MEDIA_TYPE in accept.lower() if stream is None else stream
    if wanted:
        await desk.get(job)
        feed = Feed(desk, job, known, wanted=lambda: live.phase == "ready")
        return EventStream(feed, desk.streaming())
    found, more = await desk.ask(desk.ledger.events, job, known, limit)
    page = JobEventList(data=[event_of(event) for event in found], has_more=more)
    return Response(page.model_dump_json(), media_type="application/json")


@router.post(
    "/{job}/cancel",
    summary="Cancel a training job",
    responses=responses(NotFound, Conflict, Unprocessable, Unavailable),
)
async def cancel(job: JobPath, warm: WarmDep) -> TrainingJob:
    """Cancel a job that has not ended; what was trained is kept, so that it can be resumed."""
    return Shapes(warm).job(await warm.jobs.change(warm.jobs.ledger.cancel, job))


@router.post(
    "/{job}/resume",
    summary="Resume a training job",
    responses=responses(NotFound, Conflict, Unprocessable, Unavailable),
)
async def resume(job: JobPath, warm: WarmDep) -> TrainingJob:
    """Queue a failed or cancelled job again; it goes on after its last finished epoch."""
    return Shapes(warm).job(await warm.jobs.change(warm.jobs.ledger.resume, job))


@router.delete(
    "/{job}",
    summary="Delete a training job",
    responses=responses(NotFound, Conflict, Unprocessable, Unavailable),
)
async def delete(job: JobPath, warm: WarmDep) -> JobDeleted:
    """Delete an ended job with its rows and events; the version it came to stays."""
    await warm.jobs.change(warm.jobs.ledger.delete, job)
    return JobDeleted(id=job)
