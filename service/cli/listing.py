"""`capsule list`: the tasks of a server, or the versions of one."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from capsules.cli.output import DIGEST_CHARACTERS, Output, cell, count
from service.cli.client import Client
from service.cli.references import parse_task
from service.cli.replies import Alias, Task, TaskDetail, Version

HELD = "held"


def list_tasks(client: Client, output: Output) -> None:
    """Show every task.

    Raises:
        ServerError: there is no server, or it fails.
    """
    tasks = list(client.tasks())
    output.show(
        document=[task.model_dump(mode="json") for task in tasks],
        rows=[task_row(task) for task in tasks],
        table=lambda: tasks_table(tasks),
    )


def list_versions(client: Client, name: str, output: Output) -> None:
    """Show every version of a task.

    Raises:
        UsageError: the name cannot be one.
        ServerError: the task does not exist, or there is no server.
    """
    task = client.task(parse_task(name))
    output.show(
        document=task.model_dump(mode="json"),
        rows=version_rows(task),
        table=lambda: versions_table(task),
    )


def task_row(task: Task) -> tuple[object, ...]:
    """Task, default version, how many there are, labels, state, aliases, change, description."""
    return (
        task.task,
        task.version,
        task.versions,
        task.num_classes,
        state(task.servable, held=task.version is None),
        named(task.aliases),
        task.updated_at,
        task.description,
    )


def version_rows(task: TaskDetail) -> list[tuple[object, ...]]:
    """Version, whether it is the default, labels, state, aliases, source, creation, bytes, digest."""
    return [
        (
            version.version,
            "default" if version.version == task.version else "",
            version.num_classes,
            state(version.servable, held=passed_over(task, version)),
            named(aliases_of(task, version)),
            version.source,
            version.created_at,
            version.bytes,
            version.digest,
        )
        for version in task.versions
    ]


def state(servable: bool, *, held: bool) -> str:
    """Whether something can be classified with, in a word."""
    return HELD if held else "served" if servable else "unservable"


def passed_over(task: TaskDetail, version: Version) -> bool:
    """Whether the bare name passes a version over that could be classified with."""
    return version.held and version.servable and version.version != task.version


def aliases_of(task: TaskDetail, version: Version) -> list[Alias]:
    """The aliases that point at a version."""
    return [alias for alias in task.aliases if alias.version == version.version]


def named(aliases: Sequence[Alias]) -> str:
    """Aliases, each with the version it points at."""
    return ", ".join(f"{alias.alias}@{alias.version}" for alias in aliases)


def tasks_table(tasks: Sequence[Task]) -> Table:
    """The tasks, for people."""
    table = Table(caption=count(len(tasks), "task"), caption_justify="left")
    for heading in ("task", "default", "versions", "labels", "aliases", "changed", "description"):
        table.add_column(heading, no_wrap=heading == "changed")
    for task in tasks:
        table.add_row(
            cell(task.task),
            version_cell(task.version, task.servable, held=task.version is None),
            f"{task.versions:,}",
            f"{task.num_classes:,}",
            cell(named(task.aliases)),
            day(task.updated_at),
            cell(task.description),
        )
    return table


def versions_table(task: TaskDetail) -> Table:
    """The versions of a task, for people."""
    caption = (
        f"every version of {cell(task.task)} is held"
        if task.version is None
        else f"{cell(task.task)} is version {task.version}"
    )
    table = Table(caption=caption, caption_justify="left")
    for heading in ("version", "labels", "aliases", "source", "created", "bytes", "digest"):
        table.add_column(heading, no_wrap=heading in ("created", "digest"))
    for version in task.versions:
        table.add_row(
            version_cell(version.version, version.servable, held=passed_over(task, version)),
            f"{version.num_classes:,}",
            cell(named(aliases_of(task, version))),
            cell(version.source),
            day(version.created_at),
            f"{version.bytes:,}",
            cell(version.digest[:DIGEST_CHARACTERS]),
        )
    return table


def version_cell(version: int | None, servable: bool, *, held: bool) -> Text:
    """A version's number, if there is one, and a word where it is not served."""
    number = "" if version is None else str(version)
    word = state(servable, held=held)
    if word == "served":
        return Text(number)
    return Text(f"{number} {word}".strip(), style="yellow" if held else "red")


def day(timestamp: str) -> str:
    """The date of an ISO 8601 time."""
    return cell(timestamp[: len("2026-01-31")])
