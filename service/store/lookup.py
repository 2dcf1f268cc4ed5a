"""Rows by name, or the error that says which part of the name is wrong."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.store.errors import AliasNotFound, TaskNotFound, VersionNotFound
from service.store.models import AliasRow, TaskRow, VersionRow


def version_row(session: Session, task: str, version: int) -> VersionRow:
    """Return a live version.

    Raises:
        TaskNotFound: If the task has no live version.
        VersionNotFound: If it has some, and not this one.
    """
    # A number beyond the counter may be beyond the column's range, so it is not looked up.
    counter = session.get(TaskRow, task)
    if counter is not None and 0 < version <= counter.last_version:
        row = session.get(VersionRow, (task, version))
        if row is not None:
            return row
    require_task(session, task)
    raise VersionNotFound(task, version)


def alias_row(session: Session, task: str, alias: str) -> AliasRow:
    """Return an alias.

    Raises:
        TaskNotFound: If the task has no live version.
        AliasNotFound: If it has some, and no such alias.
    """
    row = session.get(AliasRow, (task, alias))
    if row is None:
        require_task(session, task)
        raise AliasNotFound(task, alias)
    return row


def require_task(session: Session, task: str) -> None:
    """Check that a task has a live version.

    Raises:
        TaskNotFound: If it has none.
    """
    live = select(VersionRow.version).where(VersionRow.task == task).limit(1)
    if session.scalar(live) is None:
        raise TaskNotFound(task)
