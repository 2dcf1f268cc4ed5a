"""Texts of the tiny random transformers, as token ids and as words."""

from collections.abc import Sequence

import numpy as np
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing

from capsules.backbones.tokeniser import Tokeniser
from tests.support.models import FIRST_WORD, VOCABULARY

UNKNOWN, OPENING, CLOSING = 2, 3, 4


def text(length: int, seed: int = 0) -> list[int]:
    """Random token ids, none of them special."""
    generator = np.random.default_rng(seed)
    return [int(token) for token in generator.integers(FIRST_WORD, VOCABULARY, length)]


def spelled(ids: Sequence[int]) -> str:
    """The text that is made of these tokens."""
    return " ".join(f"w{token}" for token in ids)


def tokeniser(pad_id: int) -> Tokeniser:
    """Makes token 7 of `w7`, and puts a token before and one after each text."""
    words = {f"w{token}": token for token in range(VOCABULARY)}
    backend = Tokenizer(WordLevel(words, unk_token=f"w{UNKNOWN}"))
    backend.pre_tokenizer = WhitespaceSplit()
    backend.post_processor = TemplateProcessing(
        single=f"w{OPENING} $A w{CLOSING}",
        special_tokens=[(f"w{OPENING}", OPENING), (f"w{CLOSING}", CLOSING)],
    )
    return Tokeniser(backend, pad_id=pad_id)
