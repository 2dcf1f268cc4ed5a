"""Reads request bodies: cheaply, and with every fault told by the name of its field."""

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import SchemaValidator, core_schema
from starlette.requests import ClientDisconnect, Request

from capsules.json_text import holds_more
from service.errors import BadRequest, PayloadTooLarge, UnsupportedMediaType
from service.problems import MAX_FAULTS, Fault, InvalidRequest

T = TypeVar("T")

NOT_JSON = "invalid_json"
UNKNOWN = "unknown_field"
REASON = "Invalid JSON: "
CODES = {
    "missing": "missing_field",
    "extra_forbidden": UNKNOWN,
    "json_invalid": NOT_JSON,
}
# What is read without leaving the event loop: in a millisecond or two.
SMALL_BYTES = 64 * 1024

CUT_SHORT = "it was cut short, before its closing boundary; send all of it"
"""Why a form cannot be read that ends too early."""

# Parses JSON, and builds nothing of it but a string at the top.
SYNTAX = SchemaValidator(
    core_schema.with_default_schema(core_schema.str_schema(), default=None, on_error="default")
)
HALF_PAIR = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")


class JsonBody(Generic[T]):
    """A JSON body of one shape, read and validated in one pass of pydantic's parser."""

    def __init__(self, shape: type[T]) -> None:
        """Prepare for a shape.

        Args:
            shape: anything pydantic can validate.
        """
        self.adapter = TypeAdapter(shape)

    @cached_property
    def schema(self) -> Mapping[str, Any]:
        """The shape's JSON Schema."""
        return self.adapter.json_schema()

    async def read(self, request: Request, max_values: int) -> T:
        """Read and validate a request's body.

        Args:
            request: with the body.
            max_values: see :meth:`decode`.

        Raises:
            UnsupportedMediaType: it is declared to be something other than JSON.
            BadRequest: it is not JSON.
            InvalidRequest: it is JSON of another shape.
            PayloadTooLarge: it is beyond the limit of its route.
            ClientDisconnect: the client went away.
        """
        media_type = media_type_of(request.headers.get("content-type", "application/json"))
        if media_type != "application/json" and not media_type.endswith("+json"):
            raise UnsupportedMediaType(
                f"The body has the content type {media_type!r}; send JSON, with the header "
                "'Content-Type: application/json'.",
                code="unsupported_media_type",
                field="Content-Type",
            )
        body = await read_bytes(request)
        if len(body) <= SMALL_BYTES:
            return self.decode(body, max_values)
        return await asyncio.to_thread(self.decode, body, max_values)

    def decode(self, body: bytes, max_values: int) -> T:
        """Validate a body.

        Args:
            body: the bytes.
            max_values: most values, nested ones included: more than a good body needs, and few
                enough to be built and found faulty in no time.

        Raises:
            BadRequest: it is not JSON.
            InvalidRequest: it is JSON of another shape, or holds too many values.
        """
        if holds_more(body, max_values):
            check_syntax(body)
            raise too_many_values(max_values)
        try:
            return self.adapter.validate_json(body)
        except ValidationError as error:
            faults = faults_in(error, lambda: self.schema)
        if faults[0].code != NOT_JSON:
            raise InvalidRequest(faults)
        reason = faults[0].message.removeprefix(REASON)
        # Half a surrogate pair is no Unicode text, but it is JSON: whoever reads its field says no.
        if "hex escape" in reason:
            return self.decode_surrogates(body, reason)
        raise not_json(reason)

    def decode_surrogates(self, body: bytes, reason: str) -> T:
        """Validate a body with the standard library's parser, which takes half surrogate pairs."""
        try:
            value = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise not_json(reason) from error
        try:
            return self.adapter.validate_python(value)
        except ValidationError as error:
            raise InvalidRequest(faults_in(error, lambda: self.schema)) from error


async def read_bytes(request: Request) -> bytes:
    """A request's whole body.

    Raises:
        PayloadTooLarge: it is beyond the limit of its route.
        ClientDisconnect: the client went away before its end.
    """
    chunks: list[bytes] = []
    more = True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunks.append(message.get("body", b""))
        more = message.get("more_body", False)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def media_type_of(content_type: str) -> str:
    """A content type without its parameters, in lower case."""
    return content_type.partition(";")[0].strip().lower()


def malformed_form(reason: str) -> BadRequest:
    """The error for a form that cannot be read."""
    return BadRequest(f"The form cannot be read: {reason}.", code="invalid_form")


def too_large(limit: int) -> PayloadTooLarge:
    """The error for a body beyond its limit."""
    return PayloadTooLarge(
        f"The body is larger than {limit} bytes, the limit of this route; send less at a time, "
        "or have the server's operator raise it.",
        code="body_too_large",
    )


def not_json(reason: str) -> BadRequest:
    """The error for a body that is not JSON."""
    return BadRequest(f"The body is not valid JSON: {reason}.", code=NOT_JSON)


def check_syntax(body: bytes) -> None:
    """Refuse what is not JSON, half surrogate pairs aside, without building what is.

    Raises:
        BadRequest: it is not.
    """
    try:
        SYNTAX.validate_json(HALF_PAIR.sub(rb"\\u0020", body))
    except ValidationError as error:
        raise not_json(faults_in(error)[0].message.removeprefix(REASON)) from error


def too_many_values(limit: int) -> InvalidRequest:
    """The error for a body of more values than any good one has."""
    return InvalidRequest(
        [
            Fault(
                None,
                f"The body holds more than {limit} JSON values, nested ones included; split the "
                "request",
                "too_many_values",
            )
        ]
    )


def faults_in(
    error: ValidationError, schema: Callable[[], Mapping[str, Any]] | None = None
) -> list[Fault]:
    """The first that pydantic found; without values, which may be secret or not printable.

    Args:
        error: what pydantic raised.
        schema: gives the JSON Schema of the shape, to tell which fields there are.
    """
    details = error.errors(include_url=False, include_context=False, include_input=False)
    return [
        unknown(fault, known_fields(schema(), detail["loc"]))
        if schema is not None and fault.code == UNKNOWN
        else fault
        for fault, detail in zip(faults_of(details[:MAX_FAULTS]), details, strict=False)
    ]


def faults_of(details: Iterable[Mapping[str, Any]], *, skip: int = 0) -> list[Fault]:
    """What pydantic found, field by field.

    Args:
        details: of a validation error.
        skip: parts of each location to leave out, from the left.
    """
    return [
        Fault(
            field=".".join(str(part) for part in detail["loc"][skip:]) or None,
            message=detail["msg"],
            code=CODES.get(detail["type"], "invalid_value"),
        )
        for detail in details
    ]


def unknown(fault: Fault, known: Iterable[str]) -> Fault:
    """The fault of a field that there is not, with those that there are."""
    return replace(fault, message=f"There is no such field; there are {', '.join(known)}")


def known_fields(schema: Mapping[str, Any], location: Sequence[int | str]) -> list[str]:
    """The fields that there are where an unknown one was found.

    Args:
        schema: JSON Schema of the whole.
        location: of the unknown field; all but its last part are known.
    """

    def resolved(node: Mapping[str, Any]) -> Mapping[str, Any]:
        reference = node.get("$ref")
        if reference is None:
            return node
        found: Mapping[str, Any] = schema["$defs"][reference.rpartition("/")[2]]
        return found

    node = resolved(schema)
    for part in location[:-1]:
        node = resolved(node["items"] if isinstance(part, int) else node["properties"][part])
    return list(node["properties"])


def json_content(shape: type, examples: Mapping[str, Any]) -> dict[str, Any]:
    """The part of an OpenAPI operation that documents a JSON body which is read by `JsonBody`."""
    return {
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {"$ref": f"#/components/schemas/{shape.__name__}"},
                    "examples": dict(examples),
                }
            },
        }
    }
