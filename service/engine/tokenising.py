"""From named inputs to token ids, off the event loop unless that takes longer."""

from collections.abc import Iterator, Sequence

import structlog

from capsules.backbones.tokeniser import BRIEF_CHARACTERS, Tokeniser, check_unicode
from capsules.core import Encoding
from capsules.errors import InputError, InputFault
from service.engine.records import RowRequest
from service.errors import InternalError, ServiceError, Unprocessable, from_capsule_error

logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)

# One turn in the thread pool, so that a large request lets others in between and its first rows
# reach the model early.
TURN_ROWS = 256
TURN_CHARACTERS = 65_536
# Of one request, to be known again: one text under many templates is many texts.
KNOWN_CHARACTERS = 4 * 1024 * 1024


def turns(rows: Sequence[RowRequest], indices: Sequence[int]) -> Iterator[list[int]]:
    """Cut a request into pieces of a few milliseconds each.

    Args:
        rows: of the request.
        indices: which of them to tokenise.
    """
    turn: list[int] = []
    characters = 0
    for index in indices:
        turn.append(index)
        characters += rows[index].capsule.template.length(rows[index].inputs)
        if len(turn) == TURN_ROWS or characters >= TURN_CHARACTERS:
            yield turn
            turn, characters = [], 0
    if turn:
        yield turn


def is_quick(rows: Sequence[RowRequest]) -> bool:
    """Whether rows are tokenised sooner on the spot than in another thread: a single short one."""
    return len(rows) == 1 and rows[0].capsule.template.length(rows[0].inputs) <= BRIEF_CHARACTERS


class Encoder:
    """Renders and tokenises the rows of one request; equal texts of equal length limits once.

    Its turns run one after the other, in any thread.
    """

    def __init__(self, tokeniser: Tokeniser) -> None:
        self.tokeniser = tokeniser
        self.known: dict[tuple[str, int], Encoding] = {}
        self.known_characters = 0

    def encode(self, rows: Sequence[RowRequest]) -> list[Encoding | ServiceError]:
        """The encoding of each row, or why it has none; never raises."""
        try:
            return self.attempt(rows)
        except BaseException as error:  # a panic in the tokeniser is no Exception
            logger.error("tokenising_failed", rows=len(rows), exc_info=error)
            failed = InternalError(
                "The text could not be tokenised. If it happens again, report the request id.",
                code="tokenising_failed",
            )
            return [failed] * len(rows)

    def attempt(self, rows: Sequence[RowRequest]) -> list[Encoding | ServiceError]:
        """:meth:`encode`, where anything that is not the fault of a row is raised."""
        if self.known_characters > KNOWN_CHARACTERS:
            self.known.clear()
            self.known_characters = 0
        texts: list[str | ServiceError] = []
        unknown: dict[int, dict[str, None]] = {}
        for row in rows:
            try:
                text = row.capsule.template.render(row.inputs)
                check_unicode(text)
            except InputError as error:
                texts.append(from_capsule_error(error))
                continue
            texts.append(text)
            if (text, row.capsule.max_tokens) not in self.known:
                unknown.setdefault(row.capsule.max_tokens, {})[text] = None
        for max_tokens, new in unknown.items():
            encodings = self.tokeniser.encode(list(new), max_tokens)
            for text, encoding in zip(new, encodings, strict=True):
                self.known[text, max_tokens] = encoding
                self.known_characters += len(text)
        return [
            text if isinstance(text, ServiceError) else self.judged(text, row)
            for text, row in zip(texts, rows, strict=True)
        ]

    def judged(self, text: str, row: RowRequest) -> Encoding | ServiceError:
        """A row's encoding, unless it is one that cannot be classified."""
        encoding = self.known[text, row.capsule.max_tokens]
        if encoding.truncated and not row.truncate:
            return Unprocessable(
                f"The text is longer than the {row.capsule.max_tokens} tokens that this task "
                "takes; shorten it, or let it be truncated.",
                code=InputFault.TEXT_TOO_LONG.value,
                field="text",
            )
        if not encoding.input_ids:
            return Unprocessable(
                "The text holds nothing that the tokeniser knows; send other text.",
                code=InputFault.EMPTY_TEXT.value,
                field="text",
            )
        return encoding
