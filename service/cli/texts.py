"""The texts that are to be classified: from arguments, named inputs or lines of a stream."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import orjson

from capsules.cli.failure import UsageError
from capsules.data.schema import is_unicode
from service.cli.client import Text

MAX_LINE_BYTES = 16 * 1024 * 1024
"""Four times what a server takes in one request unless it is told otherwise."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A line that is no text, and why."""

    code: str
    message: str


Item = Text | Unreadable


def inputs_from(pairs: Sequence[str]) -> Mapping[str, str]:
    """Named inputs, from `key=value`.

    Raises:
        UsageError: one is not of that form, or is repeated.
    """
    inputs: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise UsageError(f"--input {pair!r} is not of the form NAME=TEXT.")
        if name in inputs:
            raise UsageError(f"--input names {name!r} more than once; leave one.")
        if not is_unicode(pair):
            raise UsageError(f"--input {name!r} is not valid UTF-8.")
        inputs[name] = value
    return inputs


def items_from(texts: Iterable[str | Unreadable], *, as_json: bool) -> Iterator[Item]:
    """Texts as they are, or read as JSON."""
    for text in texts:
        if isinstance(text, Unreadable):
            yield text
        elif not is_unicode(text):
            yield Unreadable("invalid_text", "It is not valid UTF-8.")
        else:
            yield parsed(text) if as_json else text


def lines_of(stream: BinaryIO) -> Iterator[str | Unreadable]:
    """The lines of a stream without their ends; what is not UTF-8 in them as lone surrogates.

    No more of a line than may be sent is kept, for a stream may have no ends of lines at all.
    """
    while line := stream.readline(MAX_LINE_BYTES + 1):
        if len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
            while line and not line.endswith(b"\n"):
                line = stream.readline(MAX_LINE_BYTES)
            yield Unreadable("text_too_long", f"It has more than {MAX_LINE_BYTES:,} bytes.")
        else:
            yield line.removesuffix(b"\n").removesuffix(b"\r").decode(errors="surrogateescape")


def parsed(line: str) -> Item:
    """A text or named inputs, from a line of JSON."""
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return Unreadable("invalid_json", f"It is not valid JSON: {error}.")
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and all(isinstance(one, str) for one in value.values()):
        return value
    return Unreadable("invalid_value", "It is neither a JSON string nor an object of strings.")


def size_of(item: Item) -> int:
    """About how many bytes a text takes in a request."""
    if isinstance(item, Unreadable):
        return 0
    if isinstance(item, str):
        return len(item.encode())
    return sum(len(name.encode()) + len(value.encode()) for name, value in item.items())


def batches(items: Iterable[Item], *, rows: int, size: int) -> Iterator[list[Item]]:
    """Texts in groups of at most `rows`, and of `size` bytes unless one alone has more."""
    batch: list[Item] = []
    total = 0
    for item in items:
        more = size_of(item)
        if batch and total + more > size:
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += more
        # Not at the next item: that may be long in coming.
        if len(batch) == rows:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch
