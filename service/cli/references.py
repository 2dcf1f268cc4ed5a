"""How a command line names tasks, their versions, and jobs."""

import re

from capsules.artefact.manifest import TASK_NAME
from capsules.cli.failure import UsageError

VERSION = re.compile(rf"({TASK_NAME.pattern})(?:@([1-9]\d{{0,8}}))?")
JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")


def parse_reference(reference: str) -> tuple[str, int | None]:
    """A task's name, and the version if one is meant.

    Raises:
        UsageError: it is neither `TASK` nor `TASK@VERSION`.
    """
    match = VERSION.fullmatch(reference)
    if match is None:
        raise UsageError(
            f"{reference!r} is neither a task such as trec nor a version such as trec@2.",
            code="invalid_task_name",
        )
    return match[1], int(match[2]) if match[2] else None


def parse_task(name: str) -> str:
    """A task's name.

    Raises:
        UsageError: it is none.
    """
    task, version = parse_reference(name)
    if version is not None:
        raise UsageError(
            f"{name!r} is a version; name the task alone, {task}.", code="invalid_task_name"
        )
    return task


def parse_job(text: str) -> str:
    """A job's id.

    Raises:
        UsageError: it cannot be one.
    """
    if JOB.fullmatch(text) is None:
        raise UsageError(
            f"{text!r} is no job's id; `capsule jobs list` shows them.", code="invalid_job_id"
        )
    return text
