"""The shapes of a classification, as validated and as documented."""

from typing import Annotated, Any, Literal, NotRequired

from pydantic import BaseModel, ConfigDict, FailFast, Field, WithJsonSchema, with_config
from typing_extensions import TypedDict

MAX_TOP_K = 10_000

TASK = "A task's name, or `name@3` for a version, or `name:prod` for an alias."
# No pattern, nor a least length of texts: a row that breaks them has an error in its place.
Reference = Annotated[str, Field(description=TASK, examples=["trec"])]
ONE_TEXT: dict[str, Any] = {
    "oneOf": [
        {"type": "string", "description": "The text of a task with one input."},
        {
            "type": "object",
            "description": "The named inputs of the task's template.",
            "additionalProperties": {"type": "string"},
        },
    ]
}
TEXTS: dict[str, Any] = {
    "oneOf": [*ONE_TEXT["oneOf"], {"type": "array", "items": ONE_TEXT, "minItems": 1}]
}

# Texts are validated by the service, which can name the one that is wrong; a union cannot.
OneText = Annotated[Any, WithJsonSchema(ONE_TEXT)]
Texts = Annotated[Any, WithJsonSchema(TEXTS)]

TASK_AND_TEXT = ("task", "text")
MIXED = ("inputs",)
FAN_OUT = ("tasks", "text")
OPENAI = ("model", "input")
FORMS = (TASK_AND_TEXT, MIXED, FAN_OUT, OPENAI)
"""Which keys go together; each request is of exactly one form."""

VALUES = 4096
VALUES_A_ROW = 64
"""How many JSON values a request may hold; a named input is one."""

STRICT = ConfigDict(extra="forbid", strict=True)


def one_form(schema: dict[str, Any]) -> None:
    """Say in the JSON Schema which keys go together."""
    keys = {key for form in FORMS for key in form}
    schema["oneOf"] = [
        {
            "required": list(form),
            "properties": dict.fromkeys(sorted(keys.difference(form)), False),
        }
        for form in FORMS
    ]


@with_config(STRICT)
class Input(TypedDict):
    """One row of a request with a task for each row."""

    task: Reference
    text: OneText


@with_config(ConfigDict(**STRICT, json_schema_extra=one_form))
class ClassifyRequest(TypedDict):
    """One request; `task` with `text`, `inputs`, `tasks` with `text`, or `model` with `input`."""

    task: NotRequired[Reference]
    text: NotRequired[Texts]
    inputs: NotRequired[
        Annotated[
            list[Input],
            FailFast(),
            Field(min_length=1, description="Rows with a task of their own."),
        ]
    ]
    tasks: NotRequired[
        Annotated[
            list[Reference],
            FailFast(),
            Field(min_length=1, description="Classify each text under each."),
        ]
    ]
    model: NotRequired[Annotated[str, Field(description="`task`, for OpenAI-style clients.")]]
    input: NotRequired[Texts]
    top_k: NotRequired[
        Annotated[
            int,
            Field(
                ge=1,
                le=MAX_TOP_K,
                description="Return this many labels, the most probable first; by default all of "
                "them, in the order of the capsule's head.",
            ),
        ]
    ]
    truncate: NotRequired[
        Annotated[
            bool,
            Field(
                description="Cut a text that is too long for its capsule (the default), rather "
                "than refuse it."
            ),
        ]
    ]
    timeout_ms: NotRequired[
        Annotated[
            int,
            Field(
                ge=1,
                description="Time limit of this request; by default, and at most, the server's "
                "own.",
            ),
        ]
    ]


class RowError(BaseModel):
    """Why one row of several has no answer."""

    code: str
    message: str
    field: str | None


class Row(BaseModel):
    """One answer, or why there is none."""

    index: int = Field(description="Position of the row in the request, from 0.")
    task: str
    version: int | None = Field(description="The version that computed the scores.")
    digest: str | None = Field(description="Hex sha256 of that version's file.")
    label: str | None = Field(description="The most probable label.")
    score: float | None = Field(description="Its probability.")
    probs: list[float] | None = Field(description="Probabilities, in the order of `labels`.")
    labels: list[str] | None
    num_classes: int | None = Field(description="How many labels the task has.")
    truncated: bool | None = Field(description="Whether the text was cut to fit.")
    input_tokens: int | None = Field(description="Tokens of the text, special tokens included.")
    error: RowError | None


class Usage(BaseModel):
    """Tokens, as OpenAI-style clients count them."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: int


class ClassifyReply(BaseModel):
    """The rows in the request's order; of a fan-out, all tasks of the first text come first."""

    id: str
    object: Literal["list"]
    created: int = Field(description="Unix time in seconds.")
    model: str = Field(description="The task that was asked for; of mixed tasks, the backbone.")
    data: list[Row]
    usage: Usage


EXAMPLES: dict[str, Any] = {
    "one": {
        "summary": "One text",
        "value": {"task": "trec", "text": "How far is it from Denver to Aspen?"},
    },
    "many": {
        "summary": "Many texts, the three best labels of each",
        "value": {"task": "trec", "text": ["Who was Galileo?", "What is an atom?"], "top_k": 3},
    },
    "mixed": {
        "summary": "A task for each text",
        "value": {
            "inputs": [
                {"task": "sst2", "text": "a gripping thriller"},
                {"task": "sms_spam@1", "text": "WINNER!! Claim your prize now"},
            ]
        },
    },
    "fan_out": {
        "summary": "One text under several tasks",
        "value": {"tasks": ["banking77", "clinc150"], "text": "My card has not arrived"},
    },
    "openai": {
        "summary": "As OpenAI-style clients write it",
        "value": {"model": "sst2", "input": ["a gripping thriller", "a bore"]},
    },
}
