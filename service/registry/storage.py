"""Calls the store off the event loop; the one place where its errors become the service's."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

import structlog

from capsules.artefact.file import digest
from service.errors import (
    InternalError,
    NotFound,
    PreconditionFailed,
    ServiceError,
    Unavailable,
    Unprocessable,
)
from service.registry.faults import (
    alias_not_found,
    artefact_damaged,
    task_not_found,
    version_not_found,
)
from service.registry.lanes import RETRY_AFTER_S, Lane
from service.store import Store, errors as store_errors
from service.store.base import VersionRecord

P = ParamSpec("P")
T = TypeVar("T")

logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)


async def stored(
    lane: Lane, until: float | None, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Run a method of the store in a thread; see `Lane.run`.

    Raises:
        ServiceError: whatever the store's error means to a client; or `busy`.
    """
    with translated():
        return await lane.run(until, call, *args, **kwargs)


@contextmanager
def translated() -> Iterator[None]:
    """Turn the store's errors into the service's.

    Raises:
        ServiceError: whatever the store's error means to a client.
    """
    try:
        yield
    except store_errors.StoreError as error:
        raise to_service_error(error) from error


def recorded(
    store: Store, task: str, version: int
) -> tuple[VersionRecord, Mapping[str, Any] | None]:
    """A stored version, and how good it was found to be; blocks."""
    return store.get_version(task, version), store.evaluation(task, version)


def digested(store: Store, task: str, version: int) -> tuple[bytes, str]:
    """A stored file and its digest; blocks."""
    data = store.artefact(task, version)
    return data, digest(data)


def to_service_error(error: store_errors.StoreError) -> ServiceError:
    """What a failure of the store means to a client.

    Failures of the database tell of its insides, so their text goes to the log alone.
    """
    match error:
        case store_errors.TaskNotFound():
            return task_not_found(error.task)
        case store_errors.VersionNotFound():
            return version_not_found(error.task, error.version)
        case store_errors.AliasNotFound():
            return alias_not_found(error.task, error.alias)
        case store_errors.NotFound():
            return NotFound(f"Not found: {error}.", code="not_found")
        case store_errors.DamagedRecord():
            logger.error("artefact_damaged", task=error.task, version=error.version)
            return artefact_damaged(error.task, error.version)
        case store_errors.AliasConflict():
            return alias_moved(error)
        case store_errors.InvalidValue():
            return Unprocessable(f"The value cannot be stored: {error}.", code="invalid_value")
        case store_errors.StoreUnavailable():
            logger.error("store_unavailable", reason=str(error))
            return Unavailable(
                "The store cannot be reached at present; send the request again shortly.",
                code="store_unavailable",
                retry_after=RETRY_AFTER_S,
            )
        case _:
            logger.error("store_failed", reason=str(error))
            return InternalError(
                "The store failed; the server's log says why.", code="store_failed"
            )


def alias_moved(error: store_errors.AliasConflict) -> PreconditionFailed:
    """Somebody else moved the alias first."""
    now = f"is at revision {error.actual}" if error.actual else "is not set"
    return PreconditionFailed(
        f"The alias {error.alias!r} of task {error.task!r} {now}, and If-Match names revision "
        f"{error.expected}; read it again and repeat the change on what it is now.",
        code="alias_conflict",
        field="If-Match",
    )
