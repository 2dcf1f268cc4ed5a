"""What the decoder of a T5 says, against transformers' own model."""

from typing import Any

import pytest
import torch
from torch import Tensor

from capsules.backbones.t5 import T5
from capsules.core import Reading
from capsules.injection import Prompts
from capsules.model import InjectedBackbone
from tests.support.batches import token_batch
from tests.support.models import MODELS, VOCABULARY, mt5
from tests.support.texts import text

TEXTS = (text(6), text(3, seed=1), text(8, seed=2))
EVERY_WORD = tuple(range(VOCABULARY))


@pytest.fixture(scope="module", params=["t5", "t5-v1.1", "mt5"])
def backbone(request: pytest.FixtureRequest) -> T5:
    """In float64 throughout: 1.0 scales what the decoder says, the others do not."""
    return T5((MODELS | {"mt5": mt5})[request.param]().model)


def logits(model: Any, row: int, answer: list[int]) -> Tensor:
    """[V] of the token after the first ones of an answer to a text, alone and unpadded."""
    start = model.config.decoder_start_token_id
    with torch.no_grad():
        found: Tensor = model(
            input_ids=torch.tensor([TEXTS[row]]),
            decoder_input_ids=torch.tensor([[start, *answer]]),
        ).logits[0, -1]
    return found


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
def test_without_a_reading_it_is_the_first_word(backbone: T5, left: bool) -> None:
    tokens = token_batch(TEXTS, pad_id=0, width=10, left=left)
    with torch.no_grad():
        features = InjectedBackbone(backbone).features(tokens, Prompts())
    got = features @ backbone.word_rows(EVERY_WORD).T
    for row in range(len(TEXTS)):
        torch.testing.assert_close(got[row], logits(backbone.model, row, []))


def test_a_reading_says_which_words_after_which(backbone: T5) -> None:
    # The second text along two paths, the third along one, the first not at all.
    reading = Reading(
        rows=torch.tensor([1, 1, 2]),
        prefixes=torch.tensor([[7, 9], [8, 0], [9, 9]]),
        paths=torch.tensor([2, 0, 0, 1, 0, 2]),
        steps=torch.tensor([2, 0, 1, 1, 2, 0]),
    )
    with torch.no_grad():
        features = InjectedBackbone(backbone).features(
            token_batch(TEXTS, pad_id=0), Prompts(), reading
        )
    got = features @ backbone.word_rows(EVERY_WORD).T
    expected = [(2, [9, 9]), (1, []), (1, [7]), (1, [8]), (1, [7, 9]), (2, [])]
    for place, (row, answer) in enumerate(expected):
        torch.testing.assert_close(got[place], logits(backbone.model, row, answer))


def test_only_the_rows_asked_for_are_taken(backbone: T5) -> None:
    every, some = backbone.word_rows(EVERY_WORD), backbone.word_rows([9, 7, 9])
    assert some.shape == (3, every.shape[1])
    assert torch.equal(some, every[[9, 7, 9]])
