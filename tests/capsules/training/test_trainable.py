"""A capsule in training, on a backbone of each kind."""

from typing import Any

import pytest
import torch
from torch import Tensor

from capsules.artefact.checks import expected_shapes
from capsules.backbones.base import LoadedBackbone
from capsules.errors import ArtefactError, ArtefactFault, OptionError
from capsules.scoring import HeadScorer, WordScorer
from capsules.training.config import TrainingConfig
from capsules.training.trainable import Trainable
from tests.support.backbones import tiny_tokenizer
from tests.support.batches import VARIANTS, token_batch
from tests.support.capsules import manifest_for

LABELS = ("w4", "w1 w2", "w1", "w1 w3")
TEXTS = ([2, 9, 50, 3], [2, 60, 3], [2, 80, 90, 100, 3])


def trainable(
    loaded: LoadedBackbone, *, labels: tuple[str, ...] = LABELS, **options: Any
) -> Trainable:
    return Trainable(loaded, TrainingConfig(**{"task": "tiny", "length": 2, **options}), labels)


BACKBONES = ("tiny", "tiny_llama", "tiny_t5")
# Without a head these have nothing to learn.
HEADS_ONLY = (None, "instance-only")
LEARNING = [
    (name, variant)
    for name in BACKBONES
    for variant in (*VARIANTS, None)
    if name != "tiny_t5" or variant not in HEADS_ONLY
]


@pytest.fixture(params=BACKBONES)
def loaded(request: pytest.FixtureRequest) -> LoadedBackbone:
    """An encoder, a decoder, and both in one."""
    found: LoadedBackbone = request.getfixturevalue(request.param)
    return found


def shapes(learner: Trainable) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in learner.named().items()}


def test_its_tensors_have_the_names_of_the_capsule_file(
    tiny: LoadedBackbone, tiny_llama: LoadedBackbone, tiny_t5: LoadedBackbone
) -> None:
    assert shapes(trainable(tiny)) == {
        "capsule": (3, 2, 32),
        "head.weight": (4, 32),
        "head.bias": (4,),
    }
    assert shapes(trainable(tiny_llama)) == {"capsule": (4, 2, 32), "head.weight": (4, 32)}
    assert shapes(trainable(tiny_t5)) == {"capsule": (4, 2, 32)}


@pytest.mark.parametrize("layers", ["all", "latter-half", [1, 3]], ids=str)
@pytest.mark.parametrize(("name", "variant"), [case for case in LEARNING if case[1] is not None])
def test_its_tensors_are_those_that_a_capsule_file_calls_for(
    name: str, variant: str, layers: Any, request: pytest.FixtureRequest
) -> None:
    loaded: LoadedBackbone = request.getfixturevalue(name)
    learner = trainable(loaded, variant=variant, layers=layers)
    manifest = manifest_for(loaded.info, labels=4, variant=variant, length=2, layers=layers)
    assert shapes(learner) == expected_shapes(manifest)
    assert all(value.requires_grad for value in learner.parameters())
    assert all(value.dtype == torch.float32 for value in learner.parameters())
    assert len(list(learner.parameters())) == len(learner.named())
    assert learner.slots == (3 if variant == "prepending" else 2)
    assert learner.prompts(3).slots == learner.slots


def test_layers_are_those_of_the_backbone(loaded: LoadedBackbone) -> None:
    for choice, layers in (("odd", (0, 2)), ([3], (2,)), ((1, 2), (0, 1))):
        (group,) = trainable(loaded, layers=choice).prompts(3).groups
        assert (group.layers, group.length, group.rows) == (layers, 2, None)
    with pytest.raises(OptionError, match="does not lie within 1 to") as refused:
        trainable(loaded, layers=[1, 5])
    assert refused.value.field == "layers"


def test_a_head_alone_takes_no_slots(tiny: LoadedBackbone, tiny_llama: LoadedBackbone) -> None:
    for loaded, names in ((tiny, {"head.weight", "head.bias"}), (tiny_llama, {"head.weight"})):
        head = trainable(loaded, variant=None)
        assert head.named().keys() == names
        assert head.slots == head.prompts(3).slots == 0


@pytest.mark.parametrize(
    ("variant", "named"), [(None, "a linear head"), ("instance-only", "instance-only")]
)
def test_without_a_head_some_have_nothing_to_learn(
    tiny_t5: LoadedBackbone, variant: str | None, named: str
) -> None:
    with pytest.raises(OptionError, match="nothing to learn") as refused:
        trainable(tiny_t5, variant=variant)
    assert refused.value.field == "variant"
    assert f" {named} has nothing" in refused.value.message
    assert "choose another variant" in refused.value.message


def test_labels_are_their_own_words(tiny_t5: LoadedBackbone) -> None:
    learner = trainable(tiny_t5)
    assert learner.words is not None
    assert list(learner.words.items()) == [(label, label) for label in LABELS]
    assert isinstance(learner.scorer, WordScorer)


def test_verbalizers_are_taken_in_the_order_of_the_labels(tiny_t5: LoadedBackbone) -> None:
    given = {"c": "w3", "a": "w1", "b": "w2"}
    learner = trainable(tiny_t5, labels=("a", "b", "c"), verbalizers=given)
    assert learner.words is not None
    assert list(learner.words.items()) == [("a", "w1"), ("b", "w2"), ("c", "w3")]
    assert isinstance(learner.scorer, WordScorer)
    vocabulary = tiny_tokenizer().get_vocab()
    assert learner.scorer.trie.tokens == tuple(vocabulary[word] for word in ("w1", "w2", "w3"))


def test_a_backbone_without_words_has_no_verbalizers(
    tiny: LoadedBackbone, tiny_llama: LoadedBackbone
) -> None:
    for loaded in (tiny, tiny_llama):
        assert trainable(loaded).words is None
        with pytest.raises(OptionError, match=r"leave the words of labels \(--word, ") as refused:
            trainable(loaded, labels=("a", "b"), verbalizers={"a": "w1", "b": "w2"})
        assert refused.value.field == "verbalizers"
        assert loaded.info.id in refused.value.message


@pytest.mark.parametrize(
    ("verbalizers", "says"),
    [
        ({"a": "w1"}, "'b' is missing"),
        ({"a": "w1", "b": "w2", "d": "w3"}, "'d' is no label"),
        ({}, "'a' is missing"),
    ],
)
def test_verbalizers_that_do_not_fit_the_labels_are_refused(
    tiny_t5: LoadedBackbone, verbalizers: dict[str, str], says: str
) -> None:
    with pytest.raises(OptionError, match="must be one for each label") as refused:
        trainable(tiny_t5, labels=("a", "b"), verbalizers=verbalizers)
    assert refused.value.field == "verbalizers"
    assert says in refused.value.message


def test_labels_that_are_one_word_to_the_tokenizer_are_refused(tiny_t5: LoadedBackbone) -> None:
    with pytest.raises(ArtefactError, match="give them different words") as refused:
        trainable(tiny_t5, labels=("Yes", "no", "yes"))
    assert (refused.value.code, refused.value.field) == (
        ArtefactFault.INVALID_LABELS,
        "verbalizers.yes",
    )


def test_start_values_depend_on_the_seed_alone(loaded: LoadedBackbone) -> None:
    def start(seed: int) -> dict[str, Tensor]:
        torch.rand(5)
        return trainable(loaded, seed=seed).snapshot()

    one, again, other = start(1), start(1), start(2)
    for name in one.keys() - {"head.bias"}:
        assert torch.equal(one[name], again[name])
        assert not torch.equal(one[name], other[name])


def test_heads_start_near_zero_and_biases_at_it(tiny: LoadedBackbone) -> None:
    start = trainable(tiny, labels=tuple(f"w{n}" for n in range(100))).snapshot()
    assert start["head.weight"].std().item() == pytest.approx(0.02, rel=0.1)
    assert not start["head.bias"].any()


def test_a_snapshot_does_not_follow(loaded: LoadedBackbone) -> None:
    learner = trainable(loaded, variant="extraction")
    snapshot = learner.snapshot()
    kept = {name: value.clone() for name, value in snapshot.items()}
    with torch.no_grad():
        for value in learner.parameters():
            value.add_(1)
    assert all(torch.equal(value, kept[name]) for name, value in snapshot.items())
    learner.load(snapshot)
    assert all(torch.equal(value, kept[name]) for name, value in learner.named().items())
    assert all(value.requires_grad for value in learner.parameters())


def stirred(learner: Trainable) -> Trainable:
    """The same with tensors of which none is at rest, as zeros at the start are."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for value in learner.parameters():
            value.add_(torch.randn(value.shape, generator=generator) * 0.3)
    return learner


@pytest.mark.parametrize("layers", ["all", "latter-half"])
@pytest.mark.parametrize(("name", "variant"), LEARNING)
def test_gradients_reach_every_tensor_and_no_other(
    name: str, variant: str | None, layers: str, request: pytest.FixtureRequest
) -> None:
    loaded: LoadedBackbone = request.getfixturevalue(name)
    learner = stirred(trainable(loaded, variant=variant, layers=layers))
    scores = learner(token_batch(TEXTS, pad_id=0))
    assert scores.shape == (3, 4)
    torch.nn.functional.cross_entropy(scores, torch.tensor([1, 3, 0])).backward()
    for tensor, value in learner.named().items():
        assert value.grad is not None, tensor
        # In every layer, and for every label.
        assert (value.grad.abs().reshape(len(value), -1).sum(dim=1) > 0).all(), tensor
    assert all(parameter.grad is None for parameter in loaded.backbone.model.parameters())


def test_scores_are_of_what_was_read(loaded: LoadedBackbone) -> None:
    learner = stirred(trainable(loaded))
    tokens = token_batch(TEXTS, pad_id=0)
    features = learner.features(tokens)
    # Three words begin alike, and one of these ends where the others go on: two places.
    branches = 2 if loaded.info.family == "encoder-decoder" else 1
    assert features.shape == (3 * branches, 32)
    scores = learner(tokens)
    assert torch.equal(learner.score(features), scores)
    for row, text in enumerate(TEXTS):
        alone = learner(token_batch([text], pad_id=0))
        torch.testing.assert_close(alone[0], scores[row], atol=1e-5, rtol=1e-5)
    if loaded.info.family == "encoder-decoder":
        torch.testing.assert_close(scores.exp().sum(dim=1), torch.ones(3))


def test_a_head_is_read_anew_at_every_score(tiny_llama: LoadedBackbone) -> None:
    learner = trainable(tiny_llama)
    features = torch.ones(2, 32)
    before = learner.score(features).detach()
    with torch.no_grad():
        learner.named()["head.weight"].mul_(3)
    assert isinstance(learner.scorer, HeadScorer)
    torch.testing.assert_close(learner.score(features), 3 * before)


def test_features_are_fixed_where_only_a_head_is_learned(
    tiny: LoadedBackbone, tiny_llama: LoadedBackbone, tiny_t5: LoadedBackbone
) -> None:
    for loaded in (tiny, tiny_llama):
        for variant in (*VARIANTS, None):
            fixed = trainable(loaded, variant=variant).fixed_features
            assert fixed == (variant in HEADS_ONLY), variant
    assert not trainable(tiny_t5).fixed_features


@pytest.mark.parametrize(
    ("variant", "like"), [("extraction", "addition"), ("projection", "task-only")]
)
def test_what_is_more_than_another_variant_starts_as_it_does(
    loaded: LoadedBackbone, variant: str, like: str
) -> None:
    tokens = token_batch(TEXTS, pad_id=0)
    features = [trainable(loaded, variant=form).features(tokens) for form in (variant, like)]
    torch.testing.assert_close(*features, atol=1e-5, rtol=1e-5)
