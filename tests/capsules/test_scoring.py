"""From what a backbone reads to the scores of labels: by a head, or by words."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from capsules.backbones.base import LoadedBackbone
from capsules.errors import ArtefactError, ArtefactFault
from capsules.injection import Prompts
from capsules.model import InjectedBackbone
from capsules.scoring import HeadScorer, WordScorer, label_trie, scorer
from capsules.trie import LabelTrie
from tests.reference.maths import Array, softmax
from tests.reference.words import label_probabilities
from tests.support.backbones import tiny_tokenizer
from tests.support.batches import token_batch

END = 1
WIDTH = 6


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("biased", [True, False])
def test_a_head_is_a_linear_map(biased: bool) -> None:
    weight, features = drawn(4, WIDTH), drawn(3, WIDTH, seed=1)
    bias = drawn(4, seed=2) if biased else None
    head = HeadScorer(weight, bias)
    assert head.reading(3) is None
    got = head.scores(features).numpy()
    for row in range(3):
        for label in range(4):
            expected = sum(float(weight[label, d]) * float(features[row, d]) for d in range(WIDTH))
            expected += float(bias[label]) if bias is not None else 0.0
            assert got[row, label] == pytest.approx(expected, abs=1e-5)


WORDS: dict[str, dict[str, tuple[int, ...]]] = {
    "first tokens differ": {"a": (7,), "b": (9, 9), "c": (4,)},
    "some begin alike": {"a": (7, 8), "b": (7, 9), "c": (4,)},
    "one begins another": {"a": (7,), "b": (7, 8), "c": (7, 8, 9), "d": (4, 2)},
}


def said(
    states: Mapping[tuple[int, ...], Array], matrix: Array
) -> Callable[[Sequence[int]], Array]:
    """Scores of all tokens after a prefix; where only one can follow, they make no difference."""
    return lambda prefix: matrix @ states.get(tuple(prefix), np.zeros(WIDTH))


@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS)
def test_scores_of_words_are_logarithms_of_their_shares(
    words: Mapping[str, tuple[int, ...]],
) -> None:
    trie = LabelTrie.from_words(words, END)
    rows = {token: drawn(WIDTH, seed=token) for token in range(10)}
    by_words = WordScorer(trie, torch.stack([rows[token] for token in trie.tokens]))
    branches = len(trie.branches)
    features = drawn(3 * branches, WIDTH)
    got = by_words.scores(features)
    assert got.shape == (3, len(words))
    assert got.softmax(dim=1).numpy() == pytest.approx(got.exp().numpy(), abs=1e-6)
    for row in range(3):
        states = {
            branch.prefix: features[row * branches + number].double().numpy()
            for number, branch in enumerate(trie.branches)
        }
        matrix = np.stack([rows[token].double().numpy() for token in range(10)])
        expected = label_probabilities(said(states, matrix), list(words.values()), END)
        assert got[row].exp().tolist() == pytest.approx(expected.tolist(), abs=1e-6)


def test_very_unlikely_words_keep_finite_scores() -> None:
    trie = LabelTrie.from_words(WORDS["one begins another"], END)
    by_words = WordScorer(trie, 1e4 * drawn(len(trie.tokens), WIDTH))
    got = by_words.scores(drawn(len(trie.branches), WIDTH))
    assert torch.isfinite(got).all()
    assert got.softmax(dim=1).sum().item() == pytest.approx(1.0)


def test_a_backbone_without_words_scores_by_the_head_of_the_capsule(
    tiny: LoadedBackbone, tiny_llama: LoadedBackbone
) -> None:
    tensors = {"head.weight": drawn(3, 32), "head.bias": drawn(3, seed=1), "capsule": drawn(1)}
    of_encoder = scorer(tiny, tensors, None)
    assert isinstance(of_encoder, HeadScorer)
    assert of_encoder.weight is tensors["head.weight"]
    assert of_encoder.bias is tensors["head.bias"]
    del tensors["head.bias"]
    of_decoder = scorer(tiny_llama, tensors, None)
    assert isinstance(of_decoder, HeadScorer)
    assert of_decoder.bias is None


VERBALIZERS = {"yes": "w1 w2", "no": "w1", "maybe": "w5"}


def test_a_backbone_with_words_scores_by_those_of_the_labels(tiny_t5: LoadedBackbone) -> None:
    by_words = scorer(tiny_t5, {}, VERBALIZERS)
    assert isinstance(by_words, WordScorer)
    vocabulary = tiny_tokenizer().get_vocab()
    first, second, other, end = (vocabulary[word] for word in ("w1", "w2", "w5", "[SEP]"))
    assert by_words.trie == label_trie(tiny_t5, VERBALIZERS)
    assert by_words.trie.tokens == (first, other, second, end)
    model: Any = tiny_t5.backbone.model
    embedding = model.get_input_embeddings().weight
    assert torch.equal(by_words.rows, embedding[[first, other, second, end]])

    texts = [[2, 50, 60, 3], [2, 70, 3]]
    found = by_words.reading(2)
    with torch.no_grad():
        features = InjectedBackbone(tiny_t5.backbone).features(
            token_batch(texts, pad_id=0), Prompts(), found
        )
        got = by_words.scores(features).exp()
        for row, text in enumerate(texts):
            answers = model(
                input_ids=torch.tensor([text]), decoder_input_ids=torch.tensor([[0, first]])
            ).logits[0]
            begins = softmax(answers[0, [first, other]].double().numpy())
            goes_on = softmax(answers[1, [second, end]].double().numpy())
            expected = [begins[0] * goes_on[0], begins[0] * goes_on[1], begins[1]]
            assert got[row].tolist() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("verbalizers", "field", "says"),
    [
        # The tokenizer makes no difference between them.
        ({"yes": "w1", "no": "W1 "}, "verbalizers.no", "the same tokens as that of 'yes'"),
        ({"yes": "w1", "no": " "}, "verbalizers.no", "has no tokens"),
        ({"yes": "w1 [SEP]", "no": "w1"}, "verbalizers.yes", "holds the end of an answer"),
    ],
    ids=["same", "nothing", "end"],
)
def test_words_that_cannot_be_told_apart_are_refused(
    verbalizers: dict[str, str], field: str, says: str, tiny_t5: LoadedBackbone
) -> None:
    with pytest.raises(ArtefactError) as refused:
        scorer(tiny_t5, {}, verbalizers)
    assert (refused.value.code, refused.value.field) == (ArtefactFault.INVALID_LABELS, field)
    assert says in refused.value.message
