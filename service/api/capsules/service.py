"""Turns what the registry tells into the shapes of the API, and reads its preconditions."""

import json
import re
from collections.abc import Mapping
from typing import Any

import orjson

from service.api.capsules.schemas import (
    Alias,
    CapsuleVersion,
    EvaluatedVersion,
    Removed,
    TaskDetail,
    TaskItem,
    TaskList,
    VersionItem,
)
from service.errors import BadRequest, PreconditionFailed
from service.registry import records
from service.registry.reference import check_alias_name, check_task_name
from service.registry.registry import Registry
from service.store.base import AliasRecord, Removal, VersionRecord

TAG = re.compile(r'\s*(W/)?"([^"]*)"\s*')
ANY = "*"
NOT_SET = 0
"""The revision of an alias that does not exist."""


def version_of(record: VersionRecord) -> CapsuleVersion:
    """A version."""
    return CapsuleVersion(
        task=record.task,
        version=record.version,
        digest=record.digest,
        created_at=record.created_at,
        bytes=record.size,
        source=record.source,
        held=record.held,
        job=record.job,
        manifest=well_formed(record.manifest),
    )


def evaluated(detail: records.VersionDetail) -> EvaluatedVersion:
    """A version, and how good it is."""
    report = detail.evaluation
    return EvaluatedVersion(
        **dict(version_of(detail.record)),
        evaluation=None if report is None else well_formed(report),
    )


def well_formed(document: Mapping[str, Any]) -> dict[str, Any]:
    """A stored document as replies can tell it: one that is damaged may hold no Unicode text."""
    told = dict(document)
    try:
        orjson.dumps(told)
    except TypeError:
        told = json.loads(json.dumps(told, ensure_ascii=False).encode(errors="replace"))
    return told


def alias_of(record: AliasRecord) -> Alias:
    """An alias."""
    return Alias(
        alias=record.alias,
        version=record.version,
        revision=record.revision,
        updated_at=record.updated_at,
    )


def page_of(page: records.TaskPage) -> TaskList:
    """A page of tasks."""
    return TaskList(
        data=[
            TaskItem(
                task=task.task,
                version=task.default_version,
                versions=task.versions,
                description=task.description,
                num_classes=task.labels,
                servable=task.servable,
                aliases=[alias_of(alias) for alias in task.aliases],
                updated_at=task.updated_at,
            )
            for task in page.tasks
        ],
        has_more=page.after is not None,
    )


def task_of(detail: records.TaskDetail) -> TaskDetail:
    """A task with its versions."""
    return TaskDetail(
        task=detail.summary.task,
        version=detail.summary.default_version,
        versions=[
            VersionItem(
                version=version.version,
                digest=version.digest,
                created_at=version.created_at,
                bytes=version.size,
                source=version.source,
                held=version.held,
                description=version.description,
                num_classes=version.labels,
                servable=version.servable,
            )
            for version in detail.versions
        ],
        aliases=[alias_of(alias) for alias in detail.summary.aliases],
    )


def removed(task: str, removal: Removal) -> Removed:
    """What was deleted."""
    return Removed(
        task=task,
        versions=list(removal.versions),
        aliases=[alias.alias for alias in removal.aliases],
    )


async def expected_revision(
    registry: Registry, task: str, alias: str, if_match: str | None, if_none_match: str | None
) -> int | None:
    """The revision that an alias must be at for a change to go ahead.

    Args:
        registry: knows the present revision.
        task: the alias's task.
        alias: the alias.
        if_match: the header; one of its tags must be the present revision.
        if_none_match: the header; only `*` is read, for an alias that must not exist.

    Returns:
        The revision; 0 if it must not be set; None if anything will do.

    Raises:
        BadRequest: a header is malformed.
        PreconditionFailed: no tag can match.
        NotFound: the task does not exist.
        Unprocessable: `invalid_task_name` or `invalid_alias_name`; no precondition saves these.
    """
    check_task_name(task)
    check_alias_name(alias)
    if if_none_match is not None:
        if if_none_match.strip() != ANY:
            raise BadRequest(
                "If-None-Match must be * here: change the alias only where it is not set.",
                code="invalid_precondition",
                field="If-None-Match",
            )
        return NOT_SET
    if if_match is None:
        return None
    detail = await registry.describe(task)
    present = next(
        (record.revision for record in detail.summary.aliases if record.alias == alias), NOT_SET
    )
    if if_match.strip() == ANY:
        matches = present != NOT_SET
    else:
        matches = (False, str(present)) in tags(if_match)
    if not matches:
        now = f"at revision {present}" if present else "not set"
        raise PreconditionFailed(
            f"The alias {alias!r} of task {task!r} is {now}, which If-Match does not name; read "
            "the task again and repeat the change on what it is now.",
            code="alias_conflict",
            field="If-Match",
        )
    return present


def unchanged(if_none_match: str | None, digest: str) -> bool:
    """Whether a client has the file already, by its header; tags compare weakly here."""
    if if_none_match is None:
        return False
    return if_none_match.strip() == ANY or digest in [tag for _, tag in tags(if_none_match)]


def tags(header: str) -> list[tuple[bool, str]]:
    """The entity tags in a header, each with whether it is weak; what is none is passed over."""
    found = (TAG.fullmatch(part) for part in header.split(","))
    return [(match[1] is not None, match[2]) for match in found if match]
