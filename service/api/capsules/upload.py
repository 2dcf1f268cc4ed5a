"""Reads an uploaded file, from a form or as the bare body."""

from collections.abc import AsyncGenerator

from fastapi import Request
from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from service.body import CUT_SHORT, malformed_form, media_type_of, read_bytes, too_large
from service.errors import UnsupportedMediaType
from service.problems import Fault, InvalidRequest

FORM = "multipart/form-data"
RAW = "application/octet-stream"
FIELD = "file"
MAX_FIELDS = 16
FRAMING_BYTES = 64 * 1024
"""What a form may add to the file that is in it."""

BINARY = {"type": "string", "format": "binary"}
DOCUMENTATION = {
    "requestBody": {
        "required": True,
        "content": {
            FORM: {
                "schema": {"type": "object", "required": [FIELD], "properties": {FIELD: BINARY}}
            },
            RAW: {"schema": BINARY},
        },
    }
}


async def read_file(request: Request, limit: int) -> bytes:
    """The bytes of the file that a request carries.

    Args:
        request: with a form that has the field `file`, or the file as its body.
        limit: most bytes of the file.

    Raises:
        UnsupportedMediaType: the content type is neither.
        BadRequest: the form is malformed.
        InvalidRequest: the form has no such file.
        PayloadTooLarge: the file is beyond the limit.
    """
    media_type = media_type_of(request.headers.get("content-type", RAW))
    if media_type == RAW:
        data = await read_bytes(request)
    elif media_type == FORM:
        data = await read_form(request, limit)
    else:
        raise UnsupportedMediaType(
            f"The body has the content type {media_type!r}; send a form ({FORM}) with the field "
            f"{FIELD!r}, or the file's bytes as {RAW}.",
            code="unsupported_media_type",
            field="Content-Type",
        )
    if len(data) > limit:
        raise too_large(limit)
    return data


class FormParser(MultiPartParser):
    """Refuses a form that was cut short, of which the framework takes what there is."""

    def __init__(
        self, headers: Headers, stream: AsyncGenerator[bytes, None], **limits: int
    ) -> None:
        super().__init__(headers, self.whole(stream), **limits)
        self.ended = False

    def on_end(self) -> None:
        """The closing boundary is here."""
        self.ended = True

    async def whole(self, stream: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        """The stream, which must not end before the form does.

        Raises:
            MultiPartException: it did.
        """
        async for chunk in stream:
            yield chunk
        if not self.ended:
            raise MultiPartException(CUT_SHORT)


async def read_form(request: Request, limit: int) -> bytes:
    """The file in a form, kept in memory: its size is bounded.

    Raises:
        BadRequest: the form is malformed.
        InvalidRequest: it has no such file.
    """
    parser = FormParser(request.headers, request.stream(), max_files=1, max_fields=MAX_FIELDS)
    parser.spool_max_size = limit + FRAMING_BYTES
    try:
        form = await parser.parse()
    except (MultiPartException, ValueError) as error:
        reason = error.message if isinstance(error, MultiPartException) else "bad encoding"
        raise malformed_form(reason.rstrip(".")) from error
    try:
        file = form.get(FIELD)
        if not isinstance(file, UploadFile):
            raise InvalidRequest(
                [Fault(FIELD, "A file is required, with a file name", "missing_field")]
            )
        return await file.read()
    finally:
        await form.close()
