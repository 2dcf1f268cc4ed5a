"""Uploads, downloads, listings, deletions and aliases of capsules."""

import time
from typing import Annotated

from fastapi import APIRouter, Header, Request, Response

from service.api.capsules.schemas import (
    After,
    Alias,
    AliasPath,
    AliasTarget,
    CapsuleVersion,
    EvaluatedVersion,
    Limit,
    Removed,
    TaskDetail,
    TaskList,
    TaskPath,
    VersionPath,
)
from service.api.capsules.service import (
    alias_of,
    evaluated,
    expected_revision,
    page_of,
    removed,
    task_of,
    unchanged,
    version_of,
)
from service.api.capsules.upload import DOCUMENTATION, RAW, read_file
from service.body import JsonBody, json_content
from service.dependencies import WarmDep, live_of
from service.errors import (
    BadRequest,
    Conflict,
    DeadlineExceeded,
    NotFound,
    PayloadTooLarge,
    PreconditionFailed,
    Unavailable,
    Unprocessable,
    UnsupportedMediaType,
)
from service.lean import LeanRoute
from service.problems import responses

TARGET = JsonBody(AliasTarget)
MAX_VALUES = 100
TARGET_EXAMPLES = {"version": {"summary": "Point at version 1", "value": {"version": 1}}}

PREFIX = "/v1/capsules"
router = APIRouter(prefix=PREFIX, tags=["capsules"])
# Uploads come by the dozen a second while texts are classified on the same processor.
lean = APIRouter(prefix=PREFIX, tags=["capsules"], route_class=LeanRoute)

ETAG = {"description": "The entity tag.", "schema": {"type": "string"}}
LOCATION = {"description": "Where the version is.", "schema": {"type": "string"}}
IfMatch = Annotated[
    str | None, Header(description="Go ahead only if the alias is at this revision (its ETag).")
]
IfAbsent = Annotated[
    str | None,
    Header(
        alias="If-None-Match",
        description="`*`: go ahead only if the alias is not set.",
        json_schema_extra={"enum": ["*"]},
    ),
]
IfChanged = Annotated[
    str | None,
    Header(alias="If-None-Match", description="Send the file only if it has another ETag."),
]


@lean.post(
    "",
    summary="Upload a capsule",
    status_code=201,
    openapi_extra=DOCUMENTATION,
    responses={
        200: {
            "model": CapsuleVersion,
            "description": "The task has these very bytes already; nothing was changed, so a "
            "version that is held stays so.",
            "headers": {"Location": LOCATION, "ETag": ETAG},
        },
        201: {
            "model": CapsuleVersion,
            "description": "A new version, proven, stored and served from now on.",
            "headers": {"Location": LOCATION, "ETag": ETAG},
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
async def upload(request: Request) -> Response:
    """Check a capsule file, replay its golden examples, and serve it as the task's newest version.

    Send a form with the field `file`, or the file's bytes. Once this answers, the version is on
    disk and served; a file that is refused leaves no trace.
    """
    live = live_of(request)
    warm = live.require_warm()
    data = await read_file(request, live.settings.max_artefact_bytes)
    started = time.perf_counter()
    record, created = await warm.registry.upload(data)
    live.metrics.artefact_loaded(time.perf_counter() - started)
    return Response(
        version_of(record).model_dump_json(),
        status_code=201 if created else 200,
        headers={
            "Location": f"{PREFIX}/{record.task}/versions/{record.version}",
            "ETag": f'"{record.digest}"',
        },
        media_type="application/json",
    )


router.routes.extend(lean.routes)


@router.get("", summary="List tasks", responses=responses(Unprocessable, Unavailable))
async def list_tasks(warm: WarmDep, limit: Limit = 100, after: After = None) -> TaskList:
    """One page of the tasks, by name."""
    return page_of(await warm.registry.list_tasks(after or None, limit))


@router.get(
    "/{task}", summary="Describe a task", responses=responses(NotFound, Unprocessable, Unavailable)
)
async def describe(task: TaskPath, warm: WarmDep) -> TaskDetail:
    """A task with its versions and aliases."""
    return task_of(await warm.registry.describe(task))


@router.delete(
    "/{task}", summary="Delete a task", responses=responses(NotFound, Unprocessable, Unavailable)
)
async def delete_task(task: TaskPath, warm: WarmDep) -> Removed:
    """Delete every version and alias of a task; requests in flight are answered."""
    return removed(task, await warm.registry.delete_task(task))


@router.get(
    "/{task}/versions/{version}",
    summary="Describe a version",
    responses={
        200: {"headers": {"ETag": ETAG}},
        **responses(NotFound, Unprocessable, Unavailable),
    },
)
async def describe_version(
    task: TaskPath, version: VersionPath, response: Response, warm: WarmDep
) -> EvaluatedVersion:
    """One version with its manifest, and how good it was found to be."""
    detail = await warm.registry.version(task, version)
    response.headers["ETag"] = f'"{detail.record.digest}"'
    return evaluated(detail)


@router.delete(
    "/{task}/versions/{version}",
    summary="Delete a version",
    responses=responses(NotFound, Unprocessable, Unavailable),
)
async def delete_version(task: TaskPath, version: VersionPath, warm: WarmDep) -> Removed:
    """Delete a version, with the aliases that point at it; requests in flight are answered.

    Deleting the served version rolls the task back to the newest one that is not held.
    """
    return removed(task, await warm.registry.delete_version(task, version))


@router.get(
    "/{task}/versions/{version}/artefact",
    summary="Download a version's file",
    response_class=Response,
    responses={
        200: {
            "description": "The file, byte for byte as it was uploaded.",
            "content": {RAW: {"schema": {"type": "string", "format": "binary"}}},
            "headers": {"ETag": ETAG},
        },
        304: {"description": "The client has the file already.", "headers": {"ETag": ETAG}},
        **responses(NotFound, Unprocessable, Unavailable),
    },
)
async def artefact(
    task: TaskPath, version: VersionPath, warm: WarmDep, if_none_match: IfChanged = None
) -> Response:
    """The capsule file of a version."""
    detail = await warm.registry.version(task, version)
    headers = {"ETag": f'"{detail.record.digest}"'}
    if unchanged(if_none_match, detail.record.digest):
        return Response(status_code=304, headers=headers)
    headers["Content-Disposition"] = f'attachment; filename="{task}-{version}.safetensors"'
    return Response(await warm.registry.artefact(task, version), media_type=RAW, headers=headers)


@router.put(
    "/{task}/aliases/{alias}",
    summary="Set an alias",
    openapi_extra=json_content(AliasTarget, TARGET_EXAMPLES),
    responses={
        200: {"description": "The alias was moved.", "headers": {"ETag": ETAG}},
        201: {"model": Alias, "description": "The alias is new.", "headers": {"ETag": ETAG}},
        **responses(
            BadRequest,
            NotFound,
            Conflict,
            PreconditionFailed,
            PayloadTooLarge,
            UnsupportedMediaType,
            Unprocessable,
            Unavailable,
        ),
    },
)
async def set_alias(
    task: TaskPath,
    alias: AliasPath,
    request: Request,
    response: Response,
    warm: WarmDep,
    if_match: IfMatch = None,
    if_none_match: IfAbsent = None,
) -> Alias:
    """Point an alias at a version; `prod` is what the bare task name means.

    Setting `prod` also serves a version that is held.
    """
    target = await TARGET.read(request, MAX_VALUES)
    revision = await expected_revision(warm.registry, task, alias, if_match, if_none_match)
    record, created = await warm.registry.set_alias(task, alias, target.version, revision)
    response.status_code = 201 if created else 200
    response.headers["ETag"] = f'"{record.revision}"'
    return alias_of(record)


@router.delete(
    "/{task}/aliases/{alias}",
    summary="Delete an alias",
    responses=responses(NotFound, PreconditionFailed, Unprocessable, Unavailable),
)
async def delete_alias(
    task: TaskPath, alias: AliasPath, warm: WarmDep, if_match: IfMatch = None
) -> Alias:
    """Delete an alias; the version it pointed at stays."""
    revision = await expected_revision(warm.registry, task, alias, if_match, None)
    return alias_of(await warm.registry.delete_alias(task, alias, revision))
