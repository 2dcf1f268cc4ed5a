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


Source = Annotated[Literal["upload", "zoo", "training"], Field(description="Who brought it.")]
Held = Annotated[
    bool,
    Field(
        description="Whether the bare task name passes it over; its number and aliases reach it. "
        "Setting the alias `prod` to it serves it."
    ),
]
Default = Annotated[
    int | None,
    Field(
        description="What the bare name means: `prod` where that alias is set, else the newest "
        "version that is not held; null where all are held."
    ),
]


class CapsuleVersion(BaseModel):
    """One immutable version of a task's capsule."""

    task: str
    version: int
    digest: str = Field(description="Hex sha256 of the file; also its ETag.")
    created_at: datetime
    bytes: int = Field(description="Size of the file.")
    source: Source
    held: Held
    job: str | None = Field(description="The training job it came of, if it did.")
    manifest: dict[str, Any] = Field(description="What the file says about itself.")


class EvaluatedVersion(CapsuleVersion):
    """One immutable version of a task's capsule, and how good it is."""

    evaluation: dict[str, Any] | None = Field(
        description="How good a training job found it to be, on rows it was not trained on: "
        "accuracy, macro F1, those of each class and the confusions. Null where nobody measured it."
    )


class VersionItem(BaseModel):
    """A version as a task lists it."""

    version: int
    digest: str
    created_at: datetime
    bytes: int
    source: Source
    held: Held
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
    """A task as the list shows it; what is said of a version is the default's, or else the newest's."""

    task: str
    version: Default
    versions: int = Field(description="How many versions there are.")
    description: str
    num_classes: int
    servable: bool = Field(description="Whether the bare name can be classified with.")
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
    version: Default
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
