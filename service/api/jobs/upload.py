"""Receives a submission: a form with files, or JSON with the rows in it."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, cast, get_args

from fastapi import Request
from starlette.types import Scope

from capsules.data.reader import DataFormat
from service.api.jobs.form import FormReader, Part
from service.api.jobs.options import MAX_VALUES, REQUEST_BODY, SPEC, plain
from service.api.jobs.schemas import EXAMPLES, Row
from service.api.jobs.sinks import FLUSH_BYTES, FileSink, SpecSink, format_for
from service.body import media_type_of
from service.desk.desk import Desk
from service.desk.submission import Submission
from service.errors import UnsupportedMediaType
from service.jobs.intake.records import INLINE, RowFile
from service.jobs.intake.spool import Spool
from service.jobs.records import Split
from service.jobs.spec import JobSpec
from service.problems import Fault, InvalidRequest
from service.settings import Settings

FORM = "multipart/form-data"
JSON = "application/json"
SPLITS: tuple[Split, ...] = get_args(Split)
PARTS = (SPEC, *SPLITS)

FRAMING_BYTES = 64 * 1024
"""What a form may add to what is in it."""

BINARY = {"type": "string", "format": "binary"}
DOCUMENTATION: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "A form with the options as JSON in `spec` and the rows as files: JSON "
        "lines, CSV or TSV, told by the file's name or else its content type, each plain or "
        "gzipped. Or JSON with the options and the rows.",
        "content": {
            FORM: {
                "schema": {
                    "type": "object",
                    "required": [SPEC, "train"],
                    "properties": {
                        SPEC: {"$ref": "#/components/schemas/TrainingSpec"},
                        **dict.fromkeys(SPLITS, BINARY),
                    },
                },
                "encoding": {SPEC: {"contentType": JSON}},
            },
            JSON: {
                "schema": {"$ref": "#/components/schemas/JobRequest"},
                "examples": EXAMPLES,
            },
        },
    }
}


def body_limit(settings: Settings, scope: Scope) -> int:
    """The most bytes of a submission: a form may hold files, JSON is held in memory."""
    if kind_of(dict(scope["headers"]).get(b"content-type", b"").decode("latin-1")) == FORM:
        files = len(SPLITS) * settings.max_dataset_bytes
        return files + settings.max_body_bytes + FRAMING_BYTES
    return settings.max_body_bytes


@asynccontextmanager
async def submitted(
    request: Request, desk: Desk, key: str | None, max_spec_bytes: int
) -> AsyncIterator[Submission]:
    """Receive a submission; its files are there for as long as the context is.

    Args:
        request: with the body.
        desk: receives the files.
        key: the client's idempotency key.
        max_spec_bytes: of the options in a form.

    Raises:
        UnsupportedMediaType: the body is neither a form nor JSON.
        BadRequest: it cannot be read.
        InvalidRequest: it lacks something, or has something that is not known.
        ServiceError: it is too large, or cannot be kept.
        ClientDisconnect: the client went away before its end.
    """
    content_type = request.headers.get("content-type", "")
    async with AsyncExitStack() as files:
        receiver = Receiver(desk, files, max_spec_bytes)
        match kind_of(content_type):
            case "multipart/form-data":
                spec = await receiver.read_form(request, FormReader(content_type))
            case "application/json":
                spec = await receiver.read_rows(request)
            case other:
                raise UnsupportedMediaType(
                    f"The body has the content type {other!r}; send a form ({FORM}) with the parts "
                    f"{SPEC} and train, or JSON ({JSON}) with the rows in it.",
                    code="unsupported_media_type",
                    field="Content-Type",
                )
        yield Submission(spec, receiver.files, key)


class Receiver:
    """Takes one submission apart.

    Attributes:
        files: the files of rows that are whole.
    """

    def __init__(self, desk: Desk, opened: AsyncExitStack, max_spec_bytes: int) -> None:
        """Begin.

        Args:
            desk: receives the files.
            opened: closes them.
            max_spec_bytes: of the options in a form.
        """
        self.desk = desk
        self.opened = opened
        self.max_spec_bytes = max_spec_bytes
        self.files: dict[Split, RowFile] = {}

    # --- a form -------------------------------------------------------------------------------

    async def read_form(self, request: Request, form: FormReader) -> JobSpec:
        """Read a form, part by part, and each fault as soon as it is there."""
        spec: JobSpec | None = None
        seen: set[str] = set()
        sink: SpecSink | FileSink | None = None
        async for data in request.stream():
            for piece in form.feed(data):
                if isinstance(piece, Part):
                    check_part(piece, seen)
                    seen.add(piece.name)
                    sink = await self.sink_for(piece)
                    continue
                assert sink is not None, "what a part holds follows its head"
                if isinstance(piece, bytes):
                    await sink.take(piece)
                elif isinstance(sink, SpecSink):
                    spec = await sink.spec()
                else:
                    self.files[sink.split] = await sink.rows()
        form.finish()
        if spec is None:
            raise missing(SPEC, "The options are required, as JSON; at least the name of the task")
        if "train" not in self.files:
            raise missing("train", "A file of rows to learn from is required")
        return spec

    async def sink_for(self, part: Part) -> SpecSink | FileSink:
        """What takes the content of a part."""
        if part.name == SPEC:
            return SpecSink(self.max_spec_bytes)
        split = cast(Split, part.name)
        data_format = format_for(split, part)
        return FileSink(self.desk, split, part, data_format, await self.spool(split))

    async def spool(self, split: Split) -> Spool:
        """A file to receive rows in."""
        spool = await self.desk.spool(split)
        self.opened.push_async_callback(self.desk.release, spool)
        return spool

    # --- JSON ---------------------------------------------------------------------------------

    async def read_rows(self, request: Request) -> JobSpec:
        """Read JSON with rows in it, and keep these as files like any others."""
        body = await REQUEST_BODY.read(request, MAX_VALUES)
        for split in SPLITS:
            rows: Sequence[Row] | None = getattr(body, split)
            if rows is not None:
                spool = await self.spool(split)
                await self.desk.spooling.run(None, write_rows, spool, rows)
                self.files[split] = spool.rows(INLINE, DataFormat.JSONL)
        return plain(body)


def check_part(part: Part, seen: set[str]) -> None:
    """Refuse a part that there is not, or that came before.

    Raises:
        InvalidRequest: it is one.
    """
    if part.name not in PARTS:
        fault = f"There is no such part; there are {', '.join(PARTS)}"
        raise InvalidRequest([Fault(part.name, fault, "unknown_field")])
    if part.name in seen:
        fault = "The form has this part more than once; send all of it as one"
        raise InvalidRequest([Fault(part.name, fault, "repeated_field")])


def write_rows(spool: Spool, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as JSON lines, row by row as they came."""
    lines: list[bytes] = []
    size = 0
    for row in rows:
        line = json.dumps(row).encode() + b"\n"
        lines.append(line)
        size += len(line)
        if size >= FLUSH_BYTES:
            spool.write(b"".join(lines))
            lines, size = [], 0
    spool.write(b"".join(lines))


def missing(field: str, message: str) -> InvalidRequest:
    """The error for a part that is not there."""
    return InvalidRequest([Fault(field, message, "missing_field")])


def kind_of(content_type: str) -> str:
    """The media type of a submission; those of JSON's kin are JSON."""
    media_type = media_type_of(content_type)
    return JSON if media_type.endswith("+json") else media_type
