"""Texts to token ids, from many threads at once."""

from collections.abc import Sequence
from functools import lru_cache

from tokenizers import Tokenizer

from capsules.core import MAX_LABEL_CHARACTERS, Encoding
from capsules.errors import InputError, InputFault

# More than any label can have, since a token has at least one byte.
MAX_WORD_TOKENS = 4 * MAX_LABEL_CHARACTERS

BRIEF_CHARACTERS = 512
"""Of a text that is tokenised in about the time that handing it to another thread and back takes."""


class Tokeniser:
    """A fast tokenizer that truncates to a length given per call.

    The tokenizers library keeps the truncation length inside the tokenizer, where changing it is
    not safe between threads, so each length gets a copy of its own, made once. The copies are
    read only, and for all but brief texts they release the interpreter lock while they work.
    """

    def __init__(self, backend: Tokenizer, pad_id: int) -> None:
        self.pad_id = pad_id
        source = Tokenizer.from_str(backend.to_str())
        source.no_padding()
        source.no_truncation()
        self.serialised = source.to_str()
        self.special_tokens = source.num_special_tokens_to_add(is_pair=False)
        self.truncating_to = lru_cache(maxsize=64)(self.copy_truncating_to)

    def copy_truncating_to(self, max_tokens: int) -> Tokenizer:
        """A private copy of the tokenizer that truncates at `max_tokens`."""
        copy = Tokenizer.from_str(self.serialised)
        copy.enable_truncation(max_length=max_tokens)
        return copy

    def encode(self, texts: Sequence[str], max_tokens: int) -> list[Encoding]:
        """Tokenise, with special tokens, cutting each text to `max_tokens`.

        Args:
            texts: plain texts.
            max_tokens: longest result, special tokens included.

        Raises:
            InputError: a text holds a lone surrogate, which is not Unicode text.
        """
        for text in texts:
            check_unicode(text)
        backend = self.truncating_to(max_tokens)
        if len(texts) == 1 and len(texts[0]) <= BRIEF_CHARACTERS:
            # Keeps the interpreter lock: to get it back would take longer than the work does.
            encoded = [backend.encode(texts[0])]
        else:
            encoded = backend.encode_batch_fast(list(texts))
        return [
            Encoding(input_ids=tuple(one.ids), truncated=bool(one.overflowing)) for one in encoded
        ]

    def names(self, input_ids: Sequence[int]) -> list[str]:
        """The tokens as the vocabulary spells them."""
        vocabulary = self.truncating_to(MAX_WORD_TOKENS)
        return [vocabulary.id_to_token(token) or str(token) for token in input_ids]

    def word(self, text: str) -> tuple[int, ...]:
        """The token ids of a label's word, without special tokens."""
        encoded = self.truncating_to(MAX_WORD_TOKENS).encode(text, add_special_tokens=False)
        return tuple(encoded.ids)


def check_unicode(text: str) -> None:
    """Refuse text that cannot be written as UTF-8.

    Raises:
        InputError: it holds a lone surrogate.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"The text holds half a surrogate pair at character {error.start}; "
            "send well-formed Unicode.",
            code=InputFault.INVALID_TEXT,
        ) from error
