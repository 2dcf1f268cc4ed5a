"""How a task is addressed: `name`, `name@3` for a version, `name:prod` for an alias."""

import re
from dataclasses import dataclass

from capsules.artefact.manifest import RESERVED_NAMES, TASK_NAME
from service.errors import Unprocessable

SEPARATOR = re.compile(r"[@:]")
# Bounded, since nobody counts further and integers of any length are slow to read.
VERSION = re.compile(r"[1-9][0-9]{0,17}")
NAME_RULE = (
    "write 1 to 63 of the characters a-z, 0-9, '.', '_' and '-', the first a letter or a digit"
)
SHOWN_CHARACTERS = 80


@dataclass(frozen=True, slots=True)
class Reference:
    """A task, and which of its versions is meant: a number, an alias, or neither for the default."""

    task: str
    version: int | None = None
    alias: str | None = None


def parse_reference(text: str) -> Reference:
    """Read `name`, `name@3` or `name:alias`.

    Raises:
        Unprocessable: `invalid_task_name`, `invalid_version` or `invalid_alias_name`.
    """
    separator = SEPARATOR.search(text)
    if separator is None:
        check_task_name(text)
        return Reference(text)
    task, rest = text[: separator.start()], text[separator.end() :]
    check_task_name(task)
    if separator.group() == ":":
        check_alias_name(rest, field="task")
        return Reference(task, alias=rest)
    if not VERSION.fullmatch(rest):
        raise Unprocessable(
            f"The version {quoted(rest)} is not a number from 1; write for example '{task}@3'.",
            code="invalid_version",
            field="task",
        )
    return Reference(task, version=int(rest))


def check_task_name(name: str) -> None:
    """Refuse what cannot be the name of a task.

    Raises:
        Unprocessable: `invalid_task_name`.
    """
    if not TASK_NAME.fullmatch(name):
        raise Unprocessable(
            f"{quoted(name)} is not a task name; {NAME_RULE}.",
            code="invalid_task_name",
            field="task",
        )
    if name in RESERVED_NAMES:
        raise Unprocessable(
            f"The task name {name!r} is reserved; choose another.",
            code="invalid_task_name",
            field="task",
        )


def check_alias_name(name: str, *, field: str = "alias") -> None:
    """Refuse what cannot be the name of an alias; the rule is that of task names.

    Args:
        name: the alias.
        field: the parameter it came in.

    Raises:
        Unprocessable: `invalid_alias_name`.
    """
    if not TASK_NAME.fullmatch(name):
        raise Unprocessable(
            f"{quoted(name)} is not an alias; {NAME_RULE}.", code="invalid_alias_name", field=field
        )
    if name in RESERVED_NAMES:
        raise Unprocessable(
            f"The alias {name!r} is reserved; name the task alone for its default version.",
            code="invalid_alias_name",
            field=field,
        )


def quoted(text: str) -> str:
    """The text as an error message shows it: in quotes, escaped, and not at any length."""
    return repr(text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…")
