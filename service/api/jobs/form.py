"""Splits a form into its parts while it comes in. Knows nothing of what is in them."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from service.body import CUT_SHORT, malformed_form

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks


@dataclass(slots=True)
class Part:
    """The head of a part.

    Attributes:
        name: of its field.
        filename: of the file in it, or None.
        media_type: as it is declared; empty where it is not.
    """

    name: str
    filename: str | None
    media_type: str


@dataclass(frozen=True, slots=True)
class End:
    """A part has ended."""


Piece = Part | bytes | End


@dataclass(slots=True)
class Head:
    """Headers of a part, as far as they have come."""

    name: bytes = b""
    value: bytes = b""
    fields: dict[bytes, bytes] = field(default_factory=dict)


class FormReader:
    """Takes the bytes of one form, in pieces of any size, and gives what is in them."""

    def __init__(self, content_type: str) -> None:
        """Begin a form.

        Args:
            content_type: of the request, with the boundary.

        Raises:
            BadRequest: `invalid_form`; there is no usable boundary.
        """
        _, options = parse_options_header(content_type)
        boundary = options.get(b"boundary")
        if not boundary:
            raise malformed_form("its Content-Type has no boundary")
        callbacks: MultipartCallbacks = {
            "on_part_begin": self.on_part_begin,
            "on_header_field": self.on_header_field,
            "on_header_value": self.on_header_value,
            "on_header_end": self.on_header_end,
            "on_headers_finished": self.on_headers_finished,
            "on_part_data": self.on_part_data,
            "on_part_end": self.on_part_end,
            "on_end": self.on_end,
        }
        try:
            self.parser = MultipartParser(boundary, callbacks)
        except FormParserError as error:
            raise malformed_form("its boundary is too long") from error
        self.head = Head()
        self.pieces: list[Piece] = []
        self.ended = False

    def feed(self, data: bytes) -> list[Piece]:
        """The pieces that come with more of the form.

        Raises:
            BadRequest: `invalid_form`.
        """
        self.pieces = []
        try:
            self.parser.write(data)
        except FormParserError as error:
            raise malformed_form("it is not well-formed multipart/form-data") from error
        return self.pieces

    def finish(self) -> None:
        """The request has ended, and so must the form.

        Raises:
            BadRequest: `invalid_form`; it has not.
        """
        if not self.ended:
            raise malformed_form(CUT_SHORT)

    # --- what the parser finds ------------------------------------------------------------------

    def on_part_begin(self) -> None:
        """A part begins."""
        self.head = Head()

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        """A part of a header's name."""
        self.head.name += data[start:end]

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        """A part of a header's value."""
        self.head.value += data[start:end]

    def on_header_end(self) -> None:
        """A header is whole."""
        self.head.fields[self.head.name.lower()] = self.head.value
        self.head.name = self.head.value = b""

    def on_headers_finished(self) -> None:
        """The head of a part is whole."""
        disposition = self.head.fields.get(b"content-disposition", b"")
        _, options = parse_options_header(disposition)
        if b"name" not in options:
            raise malformed_form("a part has no name in its Content-Disposition")
        filename = options.get(b"filename")
        media_type, _ = parse_options_header(self.head.fields.get(b"content-type", b""))
        self.pieces.append(
            Part(
                name=text(options[b"name"]),
                filename=None if filename is None else text(filename),
                media_type=text(media_type),
            )
        )

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        """Some of a part's content."""
        self.pieces.append(data[start:end])

    def on_part_end(self) -> None:
        """A part is whole."""
        self.pieces.append(End())

    def on_end(self) -> None:
        """The closing boundary is here."""
        self.ended = True


def text(value: bytes) -> str:
    """What a client wrote, which should be UTF-8."""
    return value.decode(errors="replace")
