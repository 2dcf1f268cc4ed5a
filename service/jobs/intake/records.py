"""What is checked, and what is found: small records that can be sent to another process."""

from collections.abc import Mapping
from dataclasses import dataclass

from capsules.data.reader import DataFormat
from service.jobs.records import DataFacts, Split

INLINE = "inline"
"""The name of rows that came in the body of a request, where each is a line."""

MAX_PROBLEMS = 20
"""Rows that cannot be used and are told of, of each file."""


@dataclass(frozen=True, slots=True)
class RowFile:
    """A file of rows, as it was received; open as long as what received it.

    Attributes:
        name: as it was sent, or `INLINE`.
        format: how its rows are written.
        size: in bytes.
        digest: hex sha256 of its bytes.
        descriptor: of the open file, which another process may inherit.
    """

    name: str
    format: DataFormat
    size: int
    digest: str
    descriptor: int


@dataclass(frozen=True, slots=True)
class Demands:
    """What the rows of a submission have to be like.

    Attributes:
        fields: names of the inputs.
        label_field: name of the label.
        labels: the labels in head order; None takes those of the training rows, sorted.
        max_bad_rows: see `capsules.data.limits.Limits`.
        max_bytes: of a file once it is unpacked.
        max_rows: of a file, good and bad.
        max_labels: of the training rows.
    """

    fields: tuple[str, ...]
    label_field: str
    labels: tuple[str, ...] | None
    max_bad_rows: int | float | None
    max_bytes: int
    max_rows: int
    max_labels: int


@dataclass(frozen=True, slots=True)
class Findings:
    """Rows that can be trained on.

    Attributes:
        labels: in head order.
        facts: what was found in each split.
        packed: the rows of each split, see `capsules.data.packed`.
        warnings: what the owner of the rows should know, in sentences.
    """

    labels: tuple[str, ...]
    facts: Mapping[Split, DataFacts]
    packed: Mapping[Split, bytes]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """Why rows cannot be trained on.

    Attributes:
        code: stable, for programs.
        message: a sentence, with the remedy.
        field: the split or option at fault.
        problems: rows that cannot be used, a sentence each, where it is for these.
    """

    code: str
    message: str
    field: str | None
    problems: tuple[str, ...] = ()
