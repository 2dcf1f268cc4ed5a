"""Takes the parts of a form while they come in."""

from pathlib import PurePosixPath

from capsules.data.reader import DataFormat, format_of
from capsules.errors import DataError, DataFault
from service.api.jobs.form import Part
from service.api.jobs.options import SPEC, read_spec
from service.desk.desk import Desk
from service.errors import PayloadTooLarge, Unprocessable
from service.jobs.intake.records import RowFile
from service.jobs.intake.spool import Spool
from service.jobs.records import Split
from service.jobs.spec import JobSpec

FLUSH_BYTES = 1024 * 1024
"""What is collected of a file before it is written to disk."""

MAX_NAME = 255

MEDIA_TYPES = {
    "application/jsonl": DataFormat.JSONL,
    "application/json-lines": DataFormat.JSONL,
    "application/jsonlines": DataFormat.JSONL,
    "application/x-jsonlines": DataFormat.JSONL,
    "application/x-ndjson": DataFormat.JSONL,
    "application/ndjson": DataFormat.JSONL,
    "text/csv": DataFormat.CSV,
    "text/tab-separated-values": DataFormat.TSV,
}


class SpecSink:
    """Takes the options."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.data = bytearray()

    async def take(self, data: bytes) -> None:
        """Take some more.

        Raises:
            PayloadTooLarge: there is too much.
        """
        self.data += data
        if len(self.data) > self.limit:
            raise PayloadTooLarge(
                f"{SPEC} is larger than {self.limit} bytes (CAPSULE_MAX_BODY_BYTES); leave out what "
                "is no option.",
                code="body_too_large",
                field=SPEC,
            )

    async def spec(self) -> JobSpec:
        """The options, once they are whole.

        Raises:
            BadRequest: they are not JSON.
            InvalidRequest: they are not valid.
        """
        return await read_spec(bytes(self.data))


class FileSink:
    """Takes a file of rows, and writes it to disk by the megabyte."""

    def __init__(
        self, desk: Desk, split: Split, part: Part, data_format: DataFormat, spool: Spool
    ) -> None:
        self.desk = desk
        self.split = split
        self.name = plain_name(part.filename or "") or split
        self.format = data_format
        self.spool = spool
        self.data = bytearray()

    async def take(self, data: bytes) -> None:
        """Take some more.

        Raises:
            PayloadTooLarge: the file is too large.
            Unavailable: it cannot be kept.
        """
        self.data += data
        if len(self.data) >= FLUSH_BYTES:
            await self.flush()

    async def flush(self) -> None:
        """Write what was collected."""
        data, self.data = bytes(self.data), bytearray()
        await self.desk.spooling.run(None, self.spool.write, data)

    async def rows(self) -> RowFile:
        """The file, once it is whole."""
        await self.flush()
        return self.spool.rows(self.name, self.format)


def format_for(split: Split, part: Part) -> DataFormat:
    """The format of a file, by its name or else its content type.

    Raises:
        Unprocessable: neither tells it.
    """
    try:
        return format_of(part.filename or "")
    except DataError as error:
        found = MEDIA_TYPES.get(part.media_type)
        if found is not None:
            return found
        called = f"named {shown(part.filename)}" if part.filename else "without a file name"
        raise Unprocessable(
            f"{split} is {called}, which does not tell its format; name it .jsonl, .ndjson, .csv "
            "or .tsv, with or without .gz, or send it as application/x-ndjson, text/csv or "
            "text/tab-separated-values.",
            code=DataFault.UNSUPPORTED_FORMAT.value,
            field=split,
        ) from error


def plain_name(name: str) -> str:
    """A file's name, without the folders that some clients send along."""
    return PurePosixPath(name.replace("\\", "/")).name[:MAX_NAME]


def shown(name: str) -> str:
    """A file's name for a message."""
    return repr(name[:MAX_NAME])
