"""Everything the server answers with an error, and the one place that speaks HTTP statuses.

ServiceError
├── BadRequest 400 · NotFound 404 · RequestTimeout 408 · Conflict 409
├── PreconditionFailed 412 · PayloadTooLarge 413 · UriTooLong 414
├── UnsupportedMediaType 415 · Unprocessable 422
├── TooManyRequests 429    this caller's quota; carries Retry-After
├── HeadersTooLarge 431
├── InternalError 500 · NotImplementedHere 501
├── Unavailable 503    full, warming or draining; carries Retry-After
└── DeadlineExceeded 504

A `CapsuleError` of the method library becomes an `Unprocessable` of the same code.
"""

# ruff: noqa: N818 - these names are read as HTTP statuses

from typing import ClassVar

from capsules.errors import CapsuleError


class ServiceError(Exception):
    """Base of the tree.

    Attributes:
        status: the HTTP status.
        title: short text for people that is the same for every occurrence.
        code: stable identifier for programs, in snake case.
        detail: one sentence for a person, with the remedy; safe to show to a client.
        field: the parameter at fault, or None.
        retry_after: seconds after which to try again, or None.
    """

    status: ClassVar[int] = 500
    title: ClassVar[str] = "Internal server error"

    def __init__(
        self,
        detail: str,
        *,
        code: str,
        field: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.code = code
        self.field = field
        self.retry_after = retry_after


class BadRequest(ServiceError):
    """The request cannot be read at all, such as a body that is not JSON."""

    status = 400
    title = "Bad request"


class NotFound(ServiceError):
    """The task, version, alias or path does not exist."""

    status = 404
    title = "Not found"


class RequestTimeout(ServiceError):
    """The request was not sent in the time that is given for it."""

    status = 408
    title = "Request timeout"


class Conflict(ServiceError):
    """The request contradicts the present state."""

    status = 409
    title = "Conflict"


class PreconditionFailed(ServiceError):
    """`If-Match` names a state that is no longer the present one."""

    status = 412
    title = "Precondition failed"


class PayloadTooLarge(ServiceError):
    """The body is larger than the limit for its route."""

    status = 413
    title = "Payload too large"


class UriTooLong(ServiceError):
    """The request's path and query are longer than any route needs."""

    status = 414
    title = "URI too long"


class UnsupportedMediaType(ServiceError):
    """The body has a content type that the route does not read."""

    status = 415
    title = "Unsupported media type"


class Unprocessable(ServiceError):
    """The body was read, and its content is not acceptable."""

    status = 422
    title = "Unprocessable content"


class TooManyRequests(ServiceError):
    """This caller has as much under way as is its share; the request may be sent again."""

    status = 429
    title = "Too many requests"


class HeadersTooLarge(ServiceError):
    """The request's headers are larger than any request needs."""

    status = 431
    title = "Request header fields too large"


class InternalError(ServiceError):
    """The server failed; the detail tells nothing of its insides."""


class NotImplementedHere(ServiceError):
    """The request needs what HTTP knows and this server does not do."""

    status = 501
    title = "Not implemented"


class Unavailable(ServiceError):
    """The server is full, warming up, draining or broken; the request may be sent again."""

    status = 503
    title = "Service unavailable"


class DeadlineExceeded(ServiceError):
    """The answer was not ready within the request's time limit."""

    status = 504
    title = "Deadline exceeded"


def from_capsule_error(error: CapsuleError) -> Unprocessable:
    """What a fault that the method library found means to a client."""
    return Unprocessable(error.message, code=error.code, field=error.field)
