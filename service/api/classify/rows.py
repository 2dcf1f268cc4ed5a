"""Reads the rows out of a request, whichever of its forms it has."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from service.api.classify.schemas import FAN_OUT, FORMS, MIXED, OPENAI, ClassifyRequest
from service.errors import Unprocessable
from service.problems import MAX_FAULTS, Fault, InvalidRequest

FORM_OF = {frozenset(form): form for form in FORMS}
FORM_KEYS = frozenset(key for form in FORMS for key in form)


class Row(NamedTuple):
    """One text under one task, as it was asked for; made in half the time that a dataclass takes.

    Attributes:
        reference: the task, as the client wrote it.
        source: where that is in the request, for messages.
        text: a string, or named inputs.
        path: where that is.
    """

    reference: str
    source: str
    text: str | Mapping[str, str]
    path: str


class Plan(NamedTuple):
    """What a request comes to.

    Attributes:
        model: the task of all rows; None where each has its own.
        rows: in the order of the reply.
    """

    model: str | None
    rows: Sequence[Row]


def plan_rows(request: ClassifyRequest, max_texts: int) -> Plan:
    """The rows of a request.

    Raises:
        InvalidRequest: the keys do not go together, or a text is neither string nor named inputs.
        Unprocessable: `too_many_texts`.
    """
    form = form_of(request)
    if form == MIXED:
        check_count(len(request["inputs"]), max_texts, "inputs")
        rows = [
            Row(one["task"], f"inputs.{index}.task", one["text"], f"inputs.{index}.text")
            for index, one in enumerate(request["inputs"])
        ]
        check_texts([(row.text, row.path) for row in rows])
        return Plan(model=None, rows=rows)
    named: str | list[str]
    if form == FAN_OUT:
        named, text, at = request["tasks"], request["text"], "text"
    elif form == OPENAI:
        named, text, at = request["model"], request["input"], "input"
    else:
        named, text, at = request["task"], request["text"], "text"
    check_count(size(text) * size(named), max_texts, at)
    texts = spread(text, at)
    check_texts(texts)
    tasks = spread(named, form[0])
    return Plan(
        model=None if form == FAN_OUT else tasks[0][0],
        rows=[Row(task, source, text, path) for text, path in texts for task, source in tasks],
    )


def form_of(request: ClassifyRequest) -> tuple[str, ...]:
    """Which of the forms a request has.

    Raises:
        InvalidRequest: none, or more than one.
    """
    present = FORM_KEYS.intersection(request)
    form = FORM_OF.get(present)
    if form is not None:
        return form
    hint = "; send " + ", or ".join(" with ".join(repr(key) for key in form) for form in FORMS)
    for form in FORMS:
        if present < set(form):
            missing = next(key for key in form if key not in present)
            raise InvalidRequest([Fault(missing, f"Field required{hint}", "missing_field")])
    names = sorted(present)
    raise InvalidRequest(
        [Fault(names[0], f"{', '.join(names)} do not go together{hint}", "conflicting_fields")]
    )


def size(value: Any) -> int:
    """How many a value is: a list's length, or one."""
    return len(value) if isinstance(value, list) else 1


def spread(value: Any, path: str) -> list[tuple[Any, str]]:
    """One or more values, each with where it is.

    Raises:
        InvalidRequest: the list is empty.
    """
    if not isinstance(value, list):
        return [(value, path)]
    if not value:
        raise InvalidRequest([Fault(path, "The list is empty; send at least one text", "no_text")])
    return [(one, f"{path}.{index}") for index, one in enumerate(value)]


def check_count(rows: int, limit: int, field: str) -> None:
    """Hold a request to the most rows.

    Raises:
        Unprocessable: `too_many_texts`.
    """
    if rows > limit:
        raise Unprocessable(
            f"The request has {rows} rows, each a text under a task, and the limit is {limit}; "
            "split it.",
            code="too_many_texts",
            field=field,
        )


def check_texts(texts: Sequence[tuple[Any, str]]) -> None:
    """Hold every text to the types that are read.

    Raises:
        InvalidRequest: one is neither a string nor an object of strings.
    """
    others = [(text, path) for text, path in texts if not isinstance(text, str)]
    if not others:
        return
    faults = (fault for text, path in others for fault in faults_of_inputs(text, path))
    told = list(islice(faults, MAX_FAULTS))
    if told:
        raise InvalidRequest(told)


def faults_of_inputs(inputs: Any, path: str) -> Iterator[Fault]:
    """What is wrong with named inputs."""
    if not isinstance(inputs, dict):
        yield Fault(path, "A text is a string or an object of named inputs", "invalid_value")
        return
    for name, value in inputs.items():
        if not isinstance(value, str):
            yield Fault(f"{path}.{name}", "A named input is a string", "invalid_value")
