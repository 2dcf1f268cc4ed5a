"""The references against transformers' own models, and what is particular to a family."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from capsules.artefact.checks import expected_shapes
from capsules.artefact.file import Capsule as CapsuleFile
from capsules.artefact.manifest import BackboneRef, Manifest
from capsules.artefact.reference import reference as backbone_reference
from capsules.backbones.base import LoadedBackbone, WordBackbone
from capsules.backbones.registry import backbone_class
from capsules.core import Geometry
from capsules.evaluation.runner import predict
from capsules.executors.torch import TorchExecutor
from capsules.model import InjectedBackbone
from capsules.scoring import WordScorer
from capsules.trie import LabelTrie, reading
from capsules.variants.addition import Addition
from capsules.variants.registry import variant
from tests.reference import capsule as reference
from tests.reference.capsule import Capsule
from tests.reference.maths import Array
from tests.reference.t5 import T5
from tests.reference.words import label_probabilities
from tests.support import claimed
from tests.support.batches import drawn_capsule, row_prompts, token_batch, torch_tensors
from tests.support.configurations import PUBLISHED
from tests.support.families import FAMILIES, Subject
from tests.support.models import MODELS, Tiny, mt5
from tests.support.texts import CLOSING, OPENING, spelled, text, tokeniser

TEXT = text(11)
ANSWER = (7, 9)


def transformers_own(model: PreTrainedModel, ids: Sequence[int]) -> tuple[list[Array], Array]:
    """Hidden states of each layer but the last, which may be normed already, and the output."""
    given = {"input_ids": torch.tensor([ids]), "output_hidden_states": True}
    if model.config.is_encoder_decoder:
        start = model.config.decoder_start_token_id
        given["decoder_input_ids"] = torch.tensor([[start, *ANSWER]])
    with torch.no_grad():
        output = model(**given)
    states: Sequence[Tensor] = output.get("encoder_hidden_states", output.get("hidden_states"))
    end: Tensor = output["logits"] if "logits" in output else output["last_hidden_state"]
    return [state[0].numpy() for state in states[1:-1]], end[0].numpy()


def what_is_read(tiny: Tiny, states: Array, output: Array) -> tuple[Array, Array]:
    """The reference's reading of the last layer, and transformers' of its own output."""
    if isinstance(tiny.reference, T5):
        return tiny.reference.logits(states, ANSWER), output[-1]
    read = tiny.reference.read(states)
    encoder = tiny.model.config.model_type in {"bert", "roberta", "deberta-v2"}
    return read, output.mean(axis=0) if encoder else output[-1]


@pytest.mark.parametrize(("exact", "tolerance"), [(True, 1e-12), (False, 2e-5)], ids=["64", "32"])
@pytest.mark.parametrize("name", [*MODELS, "mt5"])
def test_a_reference_without_capsule_is_transformers_own_model(
    name: str, exact: bool, tolerance: float
) -> None:
    tiny = (MODELS | {"mt5": mt5})[name](exact=exact)
    expected, output = transformers_own(tiny.model, TEXT)
    states = reference.states(tiny.reference, TEXT, None)
    assert len(states) == tiny.num_layers == len(expected) + 1
    for got, wanted in zip(states, expected, strict=False):
        assert np.abs(got - wanted).max() < tolerance
    read, wanted = what_is_read(tiny, states[-1], output)
    assert np.abs(wanted).max() > 0.1
    assert np.abs(read - wanted).max() < tolerance


LABELS: dict[str, dict[str, tuple[int, ...]]] = {
    "different first tokens": {"a": (7,), "b": (9,), "c": (40,)},
    "different first tokens of longer words": {"a": (7, 8), "b": (9, 10, 11), "c": (40,)},
    "shared prefix": {"a": (7, 8), "b": (7, 9), "c": (40,)},
    "prefix of another": {"a": (7,), "b": (7, 8), "c": (7, 8, 9), "d": (40,)},
    "all begin alike": {"b": (7, 8), "a": (7, 9), "c": (7, 10)},
    "many tokens": {
        "a": (7, 8, 9, 10, 11, 12),
        "b": (7, 8, 9, 10, 11, 13),
        "c": (7, 8, 20, 21),
        "d": (22, 23, 24),
        "e": (22, 23, 24, 7, 8),
    },
    "repeated tokens": {"a": (7, 7), "b": (7, 7, 7), "c": (8, 7)},
}

any_labels = pytest.mark.parametrize("words", LABELS.values(), ids=LABELS)


@pytest.fixture(scope="module", params=["t5", "t5-v1.1"])
def words_subject(request: pytest.FixtureRequest) -> Subject:
    return FAMILIES[request.param]()


def t5_of(subject: Subject) -> tuple[WordBackbone, T5]:
    assert isinstance(subject.backbone, WordBackbone)
    assert isinstance(subject.reference, T5)
    return subject.backbone, subject.reference


def expected_answer(
    model: T5,
    ids: Sequence[int],
    capsule: reference.Learned,
    words: Mapping[str, Sequence[int]],
    end: int,
) -> Array:
    last = reference.states(model, ids, capsule)[-1]
    return label_probabilities(lambda prefix: model.logits(last, prefix), list(words.values()), end)


def capsules_of(subject: Subject) -> list[Capsule | None]:
    every = tuple(range(subject.num_layers))
    return [
        drawn_capsule("addition", 1, every, subject.width),
        drawn_capsule("prepending", 2, every[1:], subject.width, seed=1),
        None,
    ]


TEXTS = (text(6), text(3, seed=1), text(8, seed=2))


@any_labels
def test_answers_are_those_of_the_whole_decoder(
    words_subject: Subject, words: Mapping[str, tuple[int, ...]]
) -> None:
    backbone, model = t5_of(words_subject)
    trie = LabelTrie.from_words(words, backbone.end_token)
    scorer = WordScorer(trie, backbone.word_rows(trie.tokens))
    capsules = capsules_of(words_subject)
    with torch.no_grad():
        features = InjectedBackbone(backbone).features(
            token_batch(TEXTS, words_subject.pad_id), row_prompts(capsules), scorer.reading(3)
        )
        got = scorer.scores(features).exp().numpy()
    assert got.sum(axis=1) == pytest.approx(np.ones(3), abs=1e-12)
    for row, (ids, capsule) in enumerate(zip(TEXTS, capsules, strict=True)):
        expected = expected_answer(model, ids, capsule, words, backbone.end_token)
        assert expected.sum() == pytest.approx(1.0, abs=1e-12)
        assert np.abs(got[row] - expected).max() < 1e-9


def test_labels_of_different_first_tokens_take_one_step(words_subject: Subject) -> None:
    backbone, _ = t5_of(words_subject)
    for name, words in LABELS.items():
        trie = LabelTrie.from_words(words, backbone.end_token)
        one_step = name.startswith("different first tokens")
        assert (reading([trie, trie]) is None) == one_step, name
        if one_step:
            assert trie.tokens == tuple(word[0] for word in words.values())


def test_tasks_with_different_words_share_a_batch(words_subject: Subject) -> None:
    backbone, model = t5_of(words_subject)
    sets = list(LABELS.values())
    tries = [LabelTrie.from_words(words, backbone.end_token) for words in sets]
    capsules = [capsules_of(words_subject)[row % 3] for row in range(len(sets))]
    texts = [text(2 + row, seed=row) for row in range(len(sets))]
    with torch.no_grad():
        features = InjectedBackbone(backbone).features(
            token_batch(texts, words_subject.pad_id), row_prompts(capsules), reading(tries)
        )
    start = 0
    for words, trie, ids, capsule in zip(sets, tries, texts, capsules, strict=True):
        mine = features[start : start + len(trie.branches)]
        start += len(trie.branches)
        got = WordScorer(trie, backbone.word_rows(trie.tokens)).scores(mine)[0].exp().numpy()
        expected = expected_answer(model, ids, capsule, words, backbone.end_token)
        assert np.abs(got - expected).max() < 1e-9
    assert start == len(features)


@any_labels
def test_gradients_of_answers_are_those_of_the_whole_decoder(
    words_subject: Subject, words: Mapping[str, tuple[int, ...]]
) -> None:
    backbone, model = t5_of(words_subject)
    trie = LabelTrie.from_words(words, backbone.end_token)
    scorer = WordScorer(trie, backbone.word_rows(trie.tokens))
    capsule = drawn_capsule("addition", 1, (0, 2), words_subject.width)
    learned = torch_tensors(capsule)["capsule"].requires_grad_()
    features = InjectedBackbone(backbone).features(
        token_batch(TEXTS[:1], words_subject.pad_id),
        row_prompts([capsule], [{"capsule": learned}]),
        scorer.reading(1),
    )
    toward = np.random.default_rng(5).normal(size=len(words))
    (scorer.scores(features)[0] * torch.from_numpy(toward)).sum().backward()
    assert learned.grad is not None
    along = np.random.default_rng(6).normal(size=learned.shape)

    def objective(value: Array) -> Array:
        moved = reference.with_tensor(capsule, "capsule", value)
        answer = expected_answer(model, TEXTS[0], moved, words, backbone.end_token)
        total: Array = (np.log(answer) * toward).sum()
        return total

    expected = reference.derivative(objective, capsule.tensors["capsule"], along)
    assert abs(expected) > 1e-4
    got = float((learned.grad.numpy() * along).sum())
    assert got == pytest.approx(expected, rel=1e-9, abs=1e-9)


@any_labels
def test_a_capsule_answers_in_the_words_of_its_labels(
    words_subject: Subject, words: Mapping[str, tuple[int, ...]]
) -> None:
    backbone, model = t5_of(words_subject)
    info = replace(
        claimed.INFO,
        family=backbone.family,
        hidden_size=words_subject.width,
        num_layers=words_subject.num_layers,
    )
    loaded = LoadedBackbone(info, backbone, tokeniser(words_subject.pad_id))
    # Their order is the labels', not that of the verbalizers.
    verbalizers = {label: spelled(words[label]) for label in reversed(list(words))}
    manifest = Manifest(
        task="words",
        backbone=backbone_reference(info),
        labels=list(words),
        verbalizers=verbalizers,
        max_length=20,
    )
    every = tuple(range(words_subject.num_layers))
    capsule = drawn_capsule("addition", 1, every, words_subject.width)
    found = predict(
        loaded,
        TorchExecutor(backbone),
        CapsuleFile(manifest, torch_tensors(capsule)),
        [{"text": spelled(ids)} for ids in TEXTS],
    )
    for ids, prediction in zip(TEXTS, found, strict=True):
        expected = expected_answer(
            model, [OPENING, *ids, CLOSING], capsule, words, backbone.end_token
        )
        assert prediction.probs == pytest.approx(expected.tolist(), abs=1e-9)
        assert prediction.label == list(words)[expected.argmax()]


@pytest.mark.parametrize("name", PUBLISHED)
def test_learned_parameters_are_as_many_as_published(name: str) -> None:
    published = PUBLISHED[name]
    model = published.model()
    parameters = sum(parameter.numel() for parameter in model.parameters())
    assert parameters == published.parameters
    # Decoders are read before the language model's output.
    base: PreTrainedModel = model if published.head == 0 else model.model
    backbone = backbone_class(base.config.model_type)(base)
    geometry = Geometry(len(backbone.layers), base.config.hidden_size)

    capsule = count(Addition().shapes(geometry, geometry.num_layers, 1))
    assert capsule == published.capsule
    manifest = Manifest(
        task="published",
        backbone=BackboneRef(
            id=name,
            family=backbone.family,
            hidden_size=geometry.hidden_size,
            num_layers=geometry.num_layers,
            fingerprint="0" * 64,
        ),
        labels=["no", "yes"],
        verbalizers={"no": "no", "yes": "yes"} if published.head == 0 else None,
    )
    learned = count(expected_shapes(manifest))
    assert learned == published.capsule + published.head
    assert f"{100 * learned / parameters:.3f}" == published.percentage


@pytest.mark.parametrize(
    ("form", "parameters", "percentage"),
    [("addition", 9_216, "0.004"), ("extraction", 64_512, "0.03"), ("projection", 156_672, "0.07")],
)
def test_variants_on_t5_base_are_as_large_as_published(
    form: str, parameters: int, percentage: str
) -> None:
    published = PUBLISHED["T5-Base"]
    shapes = variant(form).shapes(Geometry(12, 768), 12, 1)
    assert count(shapes) == parameters
    decimals = len(percentage) - 2
    assert f"{100 * parameters / published.parameters:.{decimals}f}" == percentage


def count(shapes: Mapping[str, Sequence[int]]) -> int:
    return sum(prod(shape) for shape in shapes.values())
