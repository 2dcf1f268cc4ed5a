"""What the server answers, as far as the commands read it; the rest is kept for `--json`."""

from pydantic import BaseModel, ConfigDict, Field


class Reply(BaseModel):
    """Base of the replies: frozen, and open to what later servers may add."""

    model_config = ConfigDict(frozen=True, extra="allow")


class RowError(Reply):
    """Why a row has no answer."""

    code: str
    message: str
    field: str | None = None


class Row(Reply):
    """One answer, or why there is none."""

    index: int
    task: str
    version: int | None = None
    digest: str | None = None
    label: str | None = None
    score: float | None = None
    probs: list[float] | None = None
    labels: list[str] | None = None
    num_classes: int | None = None
    truncated: bool | None = None
    input_tokens: int | None = None
    error: RowError | None = None


class Classified(Reply):
    """Answers, in the order of the texts."""

    data: list[Row]


class Stored(Reply):
    """A version of a task's capsule."""

    task: str
    version: int
    digest: str
    bytes: int


class Alias(Reply):
    """A movable name for a version."""

    alias: str
    version: int


class Task(Reply):
    """A task in the list; of its default version, or else its newest, where it says no more."""

    task: str
    version: int | None
    versions: int
    num_classes: int
    servable: bool
    aliases: list[Alias] = Field(default_factory=list)
    updated_at: str
    description: str = ""


class TaskPage(Reply):
    """One page of tasks, by name."""

    data: list[Task]
    has_more: bool


class Version(Reply):
    """A version as its task lists it."""

    version: int
    digest: str
    created_at: str
    bytes: int
    source: str
    num_classes: int
    servable: bool
    held: bool = False
    description: str = ""


class TaskDetail(Reply):
    """A task with its versions, ascending."""

    task: str
    version: int | None
    versions: list[Version]
    aliases: list[Alias] = Field(default_factory=list)


class Removed(Reply):
    """What a deletion took away."""

    task: str
    versions: list[int]
    aliases: list[str]


class FieldProblem(Reply):
    """One field at fault."""

    field: str | None = None
    message: str = ""


class Problem(Reply):
    """A failure, as an RFC 9457 document."""

    detail: str
    code: str
    request_id: str | None = None
    errors: list[FieldProblem] = Field(default_factory=list)
