"""The shapes of training jobs, their events and what is asked of them."""

import re
from typing import Annotated, Any, Literal, get_args

from fastapi import Header, Path, Query
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from capsules.artefact.manifest import telling
from service.jobs.records import EventType, Level, Status
from service.jobs.spec import JobSpec

MAX_PAGE = 100
MAX_EVENTS = 1000
MAX_NUMBER = 2**31 - 1
DIGITS = re.compile(r"0|[1-9][0-9]{0,9}")

OPTIONS = {
    "task": "The task that the capsule is for; its next version.",
    "description": "For people, kept with the version.",
    "template": "Turns the named inputs of a row into the text; its fields are those of the rows.",
    "labels": "The labels in the order of the head; by default those of the rows, sorted.",
    "label_field": "Name of the label in every row.",
    "verbalizers": "Label to word, for backbones that answer in words; by default the labels.",
    "variant": "How capsule tokens are formed.",
    "length": "Capsule tokens of each layer.",
    "layers": "Which layers get capsules: a name, or numbers from 1.",
    "epochs": "At most so many passes over the training rows.",
    "patience": "Stop after so many epochs without a better validation accuracy.",
    "batch_size": "Rows of a step.",
    "learning_rate": "At the start; by default what is best for the backbone's family.",
    "max_length": "Longest sequence in tokens, the capsule's included; by default 512, or what "
    "the backbone takes.",
    "seed": "Equal seeds, options and rows give equal capsules.",
    "validation_fraction": "Share of the training rows that is set aside where no validation rows "
    "are sent.",
    "max_bad_rows": "Rows of a file that may be left out because they cannot be used: a number, "
    "or a share below 1; by default a few.",
    "activate": "Serve the new version under the task's bare name, if it is good enough.",
    "metric": "What that is judged by.",
    "min_metric": "The least that is good enough; by default it has to beat the version that is "
    "served now on the same validation rows.",
    "metadata": "Notes of your own, at most 16.",
}

ROWS = [
    {"text": "Where is my parcel?", "label": "delivery"},
    {"text": "It has not arrived yet.", "label": "delivery"},
    {"text": "I was charged twice.", "label": "billing"},
    {"text": "The invoice is wrong.", "label": "billing"},
]
EXAMPLES = {
    "rows": {"summary": "Rows in the request", "value": {"task": "tickets", "train": ROWS}},
    "options": {
        "summary": "With options",
        "value": {
            "task": "tickets",
            "description": "What a customer writes about",
            "epochs": 10,
            "batch_size": 16,
            "seed": 1,
            "activate": False,
            "train": ROWS,
        },
    },
}


def plain_number(text: object) -> object:
    """Take a parameter for a number only as it is written: not `01`, `+1`, `1.0` or ` 1 `."""
    if isinstance(text, str) and not DIGITS.fullmatch(text):
        raise PydanticCustomError("plain_number", "Input should be a number in digits alone")
    return text


def described(schema: dict[str, Any]) -> None:
    """Tell in a JSON Schema what each option is."""
    for name, text in OPTIONS.items():
        schema["properties"][name]["description"] = text


PlainNumber = BeforeValidator(plain_number)
JobPath = Annotated[
    str,
    Path(
        description="The job's id.",
        examples=["ftjob-0123456789abcdef01234567"],
        json_schema_extra={"pattern": "^ftjob-[0-9a-f]{24}$"},
    ),
]
AfterJob = Annotated[
    str | None, Query(description="The last job of the previous page; none for the first.")
]
JobLimit = Annotated[
    int, Field(ge=1, le=MAX_PAGE), PlainNumber, Query(description="Most jobs to return.")
]
StatusFilter = Annotated[
    Status | None,
    WithJsonSchema({"type": "string", "enum": list(get_args(Status))}),
    Query(description="Only jobs that are there."),
]
TaskFilter = Annotated[str | None, Query(description="Only jobs for this task.")]
AfterEvent = Annotated[
    int,
    Field(ge=0, le=MAX_NUMBER),
    PlainNumber,
    Query(description="Number of the last event that is known; 0 for none."),
]
EventLimit = Annotated[
    int, Field(ge=1, le=MAX_EVENTS), PlainNumber, Query(description="Most events to return.")
]
Streamed = Annotated[
    bool | None,
    WithJsonSchema({"type": "boolean"}),
    Query(
        description="Send events as they happen, until the job has ended; by default where "
        "`Accept` asks for `text/event-stream`."
    ),
]
LastEventId = Annotated[
    int,
    Field(ge=0, le=MAX_NUMBER),
    PlainNumber,
    Header(
        alias="Last-Event-ID",
        description="Number of the last event that came, as `after`; the larger of them counts.",
    ),
]
IdempotencyKey = Annotated[
    str | None,
    Field(pattern="^[!-~]{1,255}$"),
    telling("give 1 to 255 visible ASCII characters, without spaces"),
    Header(
        alias="Idempotency-Key",
        description="The same request under the same key gives the same job, however often it is "
        "sent: 1 to 255 visible ASCII characters.",
    ),
]


class TrainingSpec(JobSpec):
    """What to train."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        json_schema_extra=described,
    )


Row = dict[str, Any]


class JobRequest(TrainingSpec):
    """What to train, with the rows to train on."""

    train: list[Row] = Field(
        min_length=1, description="The rows to learn from, objects of the inputs and the label."
    )
    validation: list[Row] | None = Field(
        default=None,
        min_length=1,
        description="The rows to choose the best epoch by; by default a part of the others.",
    )
    test: list[Row] | None = Field(
        default=None, min_length=1, description="The rows to measure the result on."
    )


class Hyperparameters(BaseModel):
    """How it is trained."""

    n_epochs: int = Field(description="At most so many.")
    batch_size: int
    learning_rate: float
    patience: int
    variant: str
    length: int
    layers: str | list[int]
    max_length: int
    seed: int


class BadRow(BaseModel):
    """A row that was left out."""

    line: int = Field(description="Where it begins in the file; among rows of a request, which.")
    reason: str


class RowsFound(BaseModel):
    """What was found in a file of rows."""

    id: str = Field(description="`file-` and the beginning of the digest.")
    name: str = Field(description="Of the file, as it was sent; `inline` for rows of a request.")
    bytes: int = Field(description="As they were sent.")
    digest: str = Field(description="Hex sha256 of the usable rows, whatever their format.")
    rows: int = Field(description="Those that are used.")
    bad_rows: int = Field(description="Those that were left out.")
    classes: dict[str, int] = Field(description="Rows by label.")
    duplicates: int = Field(description="Rows with the inputs of an earlier one.")
    conflicts: int = Field(description="Distinct inputs under more than one label.")
    overlap: int = Field(description="Rows whose inputs are among the training rows too.")
    problems: list[BadRow] = Field(description="The first rows that were left out, at most 20.")


class FilesFound(BaseModel):
    """What was found in the rows."""

    train: RowsFound | None
    validation: RowsFound | None
    test: RowsFound | None


class JobProgress(BaseModel):
    """How far a job has come."""

    epoch: int = Field(description="The one that is trained, from 1.")
    epochs: int = Field(description="At most so many.")
    step: int = Field(description="Batches of this epoch that are done.")
    steps: int = Field(description="Batches of an epoch.")
    loss: float | None = Field(description="Of the last batch.")
    fraction: float = Field(description="Of all epochs, from 0 to 1.")
    seconds_left: float | None = Field(description="Until the last epoch is over, at this pace.")


class Epoch(BaseModel):
    """A finished epoch."""

    epoch: int
    train_loss: float
    validation_loss: float
    validation_accuracy: float
    best: bool = Field(description="Whether it is the best so far.")
    seconds: float


class JobFailure(BaseModel):
    """Why a job failed."""

    code: str
    message: str
    param: str | None


class JobOutcome(BaseModel):
    """What a job came to."""

    version: int = Field(description="The version of the task that was registered.")
    digest: str = Field(description="Hex sha256 of its file.")
    activated: bool = Field(description="Whether the task's bare name meant it from then on.")
    reason: str = Field(description="Why, or why not.")
    metrics: dict[str, float]


class TrainingJob(BaseModel):
    """A training job, with the names of OpenAI's fine-tuning jobs where these have them."""

    object: Literal["fine_tuning.job"] = "fine_tuning.job"
    id: str
    status: Status
    created_at: int = Field(description="Unix time in seconds, like all times here.")
    started_at: int | None
    finished_at: int | None
    estimated_finish: int | None
    model: str = Field(description="The backbone.")
    fine_tuned_model: str | None = Field(description="The version it came to, as `task@version`.")
    hyperparameters: Hyperparameters
    training_file: str | None = Field(description="Id of the rows, made of their digest.")
    validation_file: str | None
    test_file: str | None
    seed: int
    error: JobFailure | None
    metadata: dict[str, str]
    task: str
    description: str
    spec: dict[str, Any] = Field(description="Everything it was asked to do.")
    files: FilesFound
    warnings: list[str] = Field(description="What to know about the rows.")
    queue_position: int | None = Field(description="1 for the next, while it is queued.")
    progress: JobProgress | None
    metrics: list[Epoch] = Field(description="The finished epochs.")
    run: int = Field(description="How often it was queued.")
    crashes: int = Field(description="Workers that died while they trained it.")
    result: JobOutcome | None


class TrainingJobList(BaseModel):
    """One page of jobs, newest first."""

    object: Literal["list"] = "list"
    data: list[TrainingJob]
    has_more: bool = Field(description="Whether there are more after the last one here.")


class JobEvent(BaseModel):
    """Something that happened to a job."""

    object: Literal["fine_tuning.job.event"] = "fine_tuning.job.event"
    id: str
    number: int = Field(description="Within the job, from 1, without gaps.")
    created_at: int
    level: Level
    type: EventType = Field(description="`metrics` where an epoch was finished, else `message`.")
    message: str
    data: dict[str, Any] = Field(description="The same for programs.")


class JobEventList(BaseModel):
    """One page of a job's events, oldest first."""

    object: Literal["list"] = "list"
    data: list[JobEvent]
    has_more: bool = Field(description="Whether there are more after the last one here, by now.")


class JobEnded(BaseModel):
    """What a stream of events ends with."""

    id: str
    status: Literal["succeeded", "failed", "cancelled", "deleted"]
    fine_tuned_model: str | None
    error: JobFailure | None


class JobDeleted(BaseModel):
    """A job was deleted."""

    object: Literal["fine_tuning.job"] = "fine_tuning.job"
    id: str
    deleted: Literal[True] = True
