"""The shapes of capsules, their versions and aliases."""

import re
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Path, Query
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from capsules.artefact.manifest import TASK_NAME

MAX_VERSION = 2**31 - 1
MAX_PAGE = 1000
DIGITS = re.compile(r"[1-9][0-9]*")


def plain_number(text: object) -> object:
    """Take a parameter for a number only as it is written: not `01`, `+1`, `1.0`, `1_0` or ` 1 `."""
    if isinstance(text, str) and not DIGITS.fullmatch(text):
        raise PydanticCustomError(
            "plain_number", "Input should be a number from 1, written in digits alone"
        )
    return text


PlainNumber = BeforeValidator(plain_number)
NAME = {"pattern": f"^{TASK_NAME.pattern}$"}

# The names' pattern is documented only: the registry checks it, with an error of its own.
TaskPath = Annotated[
    str, Path(description="The task's name.", examples=["trec"], json_schema_extra=NAME)
]
AliasPath = Annotated[
    str, Path(description="The alias.", examples=["prod"], json_schema_extra=NAME)
]
VersionPath = Annotated[
    int,
    Field(ge=1, le=MAX_VERSION),
    PlainNumber,
    Path(description="The version's number.", examples=[1]),
]
Limit = Annotated[
    int, Field(ge=1, le=MAX_PAGE), PlainNumber, Query(description="Most tasks to return.")
]
After = Annotated[
    str | None, Query(description="The last task of the previous page; empty for the first.")
]


class CapsuleVersion(BaseModel):
    """One immutable version of a task's capsule."""

    task: str
    version: int
    digest: str = Field(description="Hex sha256 of the file; also its ETag.")
    created_at: datetime
    bytes: int = Field(description="Size of the file.")
    manifest: dict[str, Any] = Field(description="What the file says about itself.")


class VersionItem(BaseModel):
    """A version as a task lists it."""

    version: int
    digest: str
    created_at: datetime
    bytes: int
    source: Literal["upload", "zoo", "training"] = Field(description="Who brought it.")
    description: str
    num_classes: int
    servable: bool = Field(
        description="False where it belongs to another backbone or its file is damaged."
    )


class Alias(BaseModel):
    """A movable name for a version; `prod` is what the bare task name means."""

    alias: str
    version: int
    revision: int = Field(description="Grows with every move; also the alias's ETag.")
    updated_at: datetime


class TaskItem(BaseModel):
    """A task as the list shows it; of its default version where it says no more."""

    task: str
    version: int = Field(description="The default: `prod` where that alias is set, else newest.")
    versions: int = Field(description="How many versions there are.")
    description: str
    num_classes: int
    servable: bool
    aliases: list[Alias]
    updated_at: datetime


class TaskList(BaseModel):
    """One page of tasks, by name."""

    object: Literal["list"] = "list"
    data: list[TaskItem]
    has_more: bool = Field(description="Whether there are more after the last one here.")


class TaskDetail(BaseModel):
    """A task with its versions, ascending."""

    task: str
    version: int = Field(description="The default: `prod` where that alias is set, else newest.")
    versions: list[VersionItem]
    aliases: list[Alias]


class Removed(BaseModel):
    """What a deletion took away; aliases go with the version they point at."""

    task: str
    versions: list[int]
    aliases: list[str]


class AliasTarget(BaseModel):
    """Where an alias is to point."""

    model_config = ConfigDict(extra="forbid", strict=True)

    version: int = Field(ge=1, le=MAX_VERSION)
