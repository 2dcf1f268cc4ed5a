"""Reads request bodies: cheaply, and with every fault told by the name of its field."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError
from starlette.requests import ClientDisconnect, Request

from service.errors import BadRequest, PayloadTooLarge, UnsupportedMediaType
from service.problems import Fault, InvalidRequest

T = TypeVar("T")

NOT_JSON = "invalid_json"
CODES = {
    "missing": "missing_field",
    "extra_forbidden": "unknown_field",
    "json_invalid": NOT_JSON,
}
MAX_DETAILS = 100


class JsonBody(Generic[T]):
    """A JSON body of one shape, read and validated in one pass of pydantic's parser."""

    def __init__(self, shape: type[T]) -> None:
        """Prepare for a shape.

        Args:
            shape: anything pydantic can validate.
        """
        self.adapter = TypeAdapter(shape)

    async def read(self, request: Request) -> T:
        """Read and validate a request's body.

        Raises:
            UnsupportedMediaType: it is declared to be something other than JSON.
            BadRequest: it is not JSON.
            InvalidRequest: it is JSON of another shape.
            PayloadTooLarge: it is beyond the limit of its route.
            ClientDisconnect: the client went away.
        """
        declared = request.headers.get("content-type", "application/json")
        media_type = declared.partition(";")[0].strip().lower()
        if media_type != "application/json" and not media_type.endswith("+json"):
            raise UnsupportedMediaType(
                f"The body has the content type {media_type!r}; send JSON, with the header "
                "'Content-Type: application/json'.",
                code="unsupported_media_type",
                field="Content-Type",
            )
        return self.decode(await read_bytes(request))

    def decode(self, body: bytes) -> T:
        """Validate a body.

        Raises:
            BadRequest: it is not JSON.
            InvalidRequest: it is JSON of another shape.
        """
        try:
            return self.adapter.validate_json(body)
        except ValidationError as error:
            faults = faults_in(error)
        if faults[0].code != NOT_JSON:
            raise InvalidRequest(faults)
        reason = faults[0].message.removeprefix("Invalid JSON: ")
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
            raise InvalidRequest(faults_in(error)) from error


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


def faults_in(error: ValidationError) -> list[Fault]:
    """What pydantic found, without the values: they may be secret, endless or not printable."""
    count = error.error_count()
    if count > MAX_DETAILS:
        # To list them all would take seconds, which a client could make us waste.
        return [Fault(None, f"{count} values are not valid", "invalid_request")]
    return faults_of(error.errors(include_url=False, include_context=False, include_input=False))


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
