"""Every failure as one RFC 9457 problem document, which OpenAI-style clients can read as well."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import orjson
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response

from service.errors import (
    InternalError,
    ServiceError,
    TooManyRequests,
    Unavailable,
    Unprocessable,
)
from service.notes import RequestNotes

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:capsule:problem:"
SCHEMA = {"$ref": "#/components/schemas/Problem"}
"""Refers to :class:`Problem` in the OpenAPI document."""

# A client may send megabytes under the wrong key; the answer shows that much of it.
MAX_DETAIL = 1000
MAX_FIELD = 200
MAX_FAULTS = 20


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with one field of a request."""

    field: str | None
    message: str
    code: str


class InvalidRequest(Unprocessable):
    """The request breaks its schema, in one place or several.

    Attributes:
        faults: at least one.
    """

    def __init__(self, faults: Sequence[Fault]) -> None:
        first = faults[0]
        alone = len(faults) == 1
        super().__init__(
            described(first)
            if alone
            else f"Several fields are not valid, the first of them: {described(first)}",
            code=first.code if alone else "invalid_request",
            field=first.field,
        )
        self.faults = tuple(faults)


def described(fault: Fault) -> str:
    """A fault as a sentence."""
    where = f"{fault.field}: " if fault.field else ""
    return f"{where}{fault.message}."


class FieldProblem(BaseModel):
    """One field at fault."""

    field: str | None = Field(
        description="Path of the field, such as `text.3`, if one is at fault."
    )
    message: str = Field(description="What is wrong with it.")
    code: str = Field(description="Stable identifier, for programs.")


class OpenAIError(BaseModel):
    """The same failure, as OpenAI-style clients read it."""

    message: str
    type: str = Field(description="`invalid_request_error` below 500, else `server_error`.")
    param: str | None
    code: str


class Problem(BaseModel):
    """An RFC 9457 problem document; every failure on every route is one."""

    type: str = Field(description="`urn:capsule:problem:` and the code.")
    title: str = Field(description="The same for every problem of this status.")
    status: int
    detail: str = Field(description="What happened and what to do about it.")
    code: str = Field(description="Stable identifier, for programs.")
    request_id: str
    errors: list[FieldProblem]
    error: OpenAIError


def respond(error: ServiceError, notes: RequestNotes) -> Response:
    """The response that tells a client of an error."""
    alone = (Fault(error.field, error.detail, error.code),)
    return render(
        status=HTTPStatus(error.status),
        title=error.title,
        code=error.code,
        detail=error.detail,
        faults=error.faults if isinstance(error, InvalidRequest) else alone,
        notes=notes,
        headers={} if error.retry_after is None else {"Retry-After": str(error.retry_after)},
    )


def respond_http(error: HTTPException, notes: RequestNotes, headers: Mapping[str, str]) -> Response:
    """The response for a failure that the web framework found: a path, a method, a form.

    Args:
        error: what it raised.
        notes: on the request; they get the error's code.
        headers: those to send beside the error's own.
    """
    status = HTTPStatus(error.status_code)
    code = FRAMEWORK_CODES.get(status, status.phrase.lower().replace(" ", "_"))
    detail = FRAMEWORK_DETAILS.get(status, str(error.detail))
    return render(
        status=status,
        title=status.phrase.capitalize(),
        code=code,
        detail=detail,
        faults=(Fault(None, detail, code),),
        notes=notes,
        headers={**(error.headers or {}), **headers},
    )


FRAMEWORK_CODES = {HTTPStatus.NOT_FOUND: "path_not_found"}
FRAMEWORK_DETAILS = {
    HTTPStatus.NOT_FOUND: "This server has no such path; /docs lists those it has.",
    HTTPStatus.METHOD_NOT_ALLOWED: "This path does not take that method; the Allow header lists "
    "those it takes.",
}


def render(
    *,
    status: HTTPStatus,
    title: str,
    code: str,
    detail: str,
    faults: Sequence[Fault],
    notes: RequestNotes,
    headers: Mapping[str, str],
) -> Response:
    """A problem document as a response, whose code goes into the notes."""
    notes.code = code
    errors = [
        {
            "field": fault.field and shortened(fault.field, MAX_FIELD),
            "message": shortened(fault.message, MAX_DETAIL),
            "code": fault.code,
        }
        for fault in faults[:MAX_FAULTS]
    ]
    detail = shortened(detail, MAX_DETAIL)
    document = {
        "type": TYPE_PREFIX + code,
        "title": title,
        "status": status.value,
        "detail": detail,
        "code": code,
        "request_id": notes.request_id,
        "errors": errors,
        "error": {
            "message": detail,
            "type": "invalid_request_error" if status < 500 else "server_error",
            "param": errors[0]["field"],
            "code": code,
        },
    }
    return Response(orjson.dumps(document), status.value, dict(headers), MEDIA_TYPE)


def shortened(text: str, limit: int) -> str:
    """Text of a client's that is safe to send back: well-formed, and not much of it."""
    if len(text) > limit:
        text = f"{text[: limit - 1]}…"
    return text.encode(errors="backslashreplace").decode()


def responses(*errors: type[ServiceError]) -> dict[int | str, dict[str, Any]]:
    """What a route documents: these errors, and the one that every route can give."""
    documented: tuple[type[ServiceError], ...] = (*errors, InternalError)
    return {
        error.status: {
            "description": error.title,
            "content": {MEDIA_TYPE: {"schema": SCHEMA}},
            **({"headers": RETRY_AFTER} if error in (TooManyRequests, Unavailable) else {}),
        }
        for error in documented
    }


RETRY_AFTER = {
    "Retry-After": {
        "description": "Seconds after which to try again.",
        "schema": {"type": "integer", "minimum": 0},
    }
}
