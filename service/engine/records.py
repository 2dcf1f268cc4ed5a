"""What goes into the engine and what comes out."""

from collections.abc import Mapping
from dataclasses import dataclass

from capsules.template import Template
from capsules.trie import LabelTrie
from service.errors import ServiceError

PROOF_CALLER = "proof of uploads"
"""The key under which golden examples are replayed; no client has it."""


@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """One capsule version that rows can be classified with; compared by identity.

    Kept small, since thousands are in memory: the manifest stays in the store.

    Attributes:
        task: its task.
        version: its number, counted from 1 within the task.
        digest: hex sha256 of its file.
        labels: in head order.
        template: turns named inputs into the text.
        max_tokens: longest text in tokens, special tokens included, capsule slots not.
        slots: positions that the capsule itself takes in the sequence.
        trie: the label words, on backbones that answer in words; else None.
    """

    task: str
    version: int
    digest: str
    labels: tuple[str, ...]
    template: Template
    max_tokens: int
    slots: int = 1
    trie: LabelTrie | None = None


@dataclass(frozen=True, slots=True)
class RowRequest:
    """One text to classify with one capsule version.

    Attributes:
        capsule: the version, which stays in the bank until the row is answered.
        inputs: the template's named inputs.
        truncate: cut a text that is too long, rather than refuse it.
    """

    capsule: Served
    inputs: Mapping[str, str]
    truncate: bool = True


@dataclass(frozen=True, slots=True)
class RowAnswer:
    """What the model said about one row.

    Attributes:
        probs: one probability a label, in head order, finite.
        input_tokens: tokens of the text, special tokens included, capsule slots not.
        truncated: whether the text was cut to fit.
    """

    probs: tuple[float, ...]
    input_tokens: int
    truncated: bool


@dataclass(frozen=True, slots=True)
class Timings:
    """Where the time of one request went, in seconds; the longest of its rows."""

    tokenise: float
    queue: float
    forward: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answers of one request, in the order of its rows; an error where a row failed."""

    rows: tuple[RowAnswer | ServiceError, ...]
    timings: Timings


NOTHING_ASKED = Outcome(rows=(), timings=Timings(tokenise=0.0, queue=0.0, forward=0.0))
"""What comes of a request without rows."""
