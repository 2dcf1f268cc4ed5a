"""What the registry answers when a name leads nowhere, or to ruins; the codes are part of the HTTP contract.

Where the parts of a name came in one parameter, such as `trec@3`, `field` says which.
"""

from service.errors import Conflict, InternalError, NotFound, Unavailable

WARMING_RETRY_AFTER_S = 1


def task_not_found(task: str) -> NotFound:
    """The task has no version."""
    return NotFound(
        f"The task {task!r} has no capsule here; list the tasks to see those that have.",
        code="task_not_found",
        field="task",
    )


def version_not_found(task: str, version: int, field: str = "version") -> NotFound:
    """The task is known, the version is not."""
    return NotFound(
        f"The task {task!r} has no version {version}; list its versions to see those it has.",
        code="version_not_found",
        field=field,
    )


def alias_not_found(task: str, alias: str, field: str = "alias") -> NotFound:
    """The task is known, the alias is not."""
    return NotFound(
        f"The task {task!r} has no alias {alias!r}; list its aliases to see those it has.",
        code="alias_not_found",
        field=field,
    )


def no_served_version(task: str, newest: int) -> Conflict:
    """The task has versions, and its bare name means none of them."""
    return Conflict(
        f"Every version of the task {task!r} is held back, so its bare name means none of them. "
        f"Name one, such as '{task}@{newest}', or serve one under the bare name: "
        f"PUT /v1/capsules/{task}/aliases/prod.",
        code="no_served_version",
        field="task",
    )


def artefact_damaged(task: str, version: int) -> InternalError:
    """The version is there, but not as it was stored."""
    return InternalError(
        f"Version {version} of task {task!r} is damaged in the store; delete it, then upload the "
        "file again.",
        code="artefact_damaged",
    )


def warming() -> Unavailable:
    """The catalogue is not there yet."""
    return Unavailable(
        "The server is still loading its capsules; send the request again shortly.",
        code="warming",
        retry_after=WARMING_RETRY_AFTER_S,
    )
