from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from capsules.backbones.base import LoadedBackbone
from capsules.baselines.learner import Counts, PeftLearner
from capsules.baselines.lora import Lora
from capsules.baselines.prefix_tuning import PrefixTuning
from capsules.baselines.prompt_tuning import PromptTuning
from capsules.errors import OptionError
from capsules.injection import Prompts
from capsules.model import InjectedBackbone
from capsules.training.config import TrainingConfig
from capsules.training.run import Run
from capsules.training.trainable import Trainable
from tests.capsules.baselines.conftest import LABELS, Case, Load
from tests.support.batches import token_batch
from tests.support.datasets import separable

TARGETS = torch.tensor([0, 1, 2])


def bare(case: Case) -> Tensor:
    """What the backbone says without any method."""
    with torch.no_grad():
        return InjectedBackbone(case.loaded.backbone).features(case.tokens(), Prompts())


def test_gradients_reach_every_learned_tensor_and_no_other(case: Case) -> None:
    learner = case.trained()
    functional.cross_entropy(learner(case.tokens()), TARGETS).backward()
    for name, value in learner.named().items():
        assert value.grad is not None, name
        assert value.grad.abs().max() > 0, name
    assert {id(value) for value in learner.parameters()} == {
        id(value) for value in learner.named().values()
    }
    for parameter in case.loaded.backbone.model.parameters():
        assert not parameter.requires_grad
        assert parameter.grad is None


def test_the_backbone_stays_as_it_was_found(case: Case) -> None:
    model = case.loaded.backbone.model
    features = bare(case)
    modules = [(name, id(module)) for name, module in model.named_modules()]
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    attributes, config = set(vars(model)), model.config.to_dict()

    learner = case.trained().train()
    optimizer = torch.optim.SGD(learner.parameters(), lr=0.1)
    functional.cross_entropy(learner(case.tokens()), TARGETS).backward()
    optimizer.step()

    assert torch.equal(bare(case), features)
    assert [(name, id(module)) for name, module in model.named_modules()] == modules
    assert model.state_dict().keys() == weights.keys()
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    assert (set(vars(model)), model.config.to_dict()) == (attributes, config)
    assert not any(module.training for module in model.modules())
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_learners_on_one_backbone_do_not_disturb_each_other(case: Case) -> None:
    first = case.trained(seed=1)
    with torch.no_grad():
        alone = first(case.tokens())
        second = case.trained(seed=2)
        assert not torch.equal(second(case.tokens()), alone)
        assert torch.equal(first(case.tokens()), alone)


def test_start_values_depend_on_the_seed_alone(case: Case) -> None:
    first = case.learner(seed=5).snapshot()
    torch.rand(3)
    state = torch.get_rng_state()
    again = case.learner(seed=5).snapshot()
    assert torch.equal(torch.get_rng_state(), state)
    assert first.keys() == again.keys()
    assert all(torch.equal(first[name], again[name]) for name in first)
    other = case.learner(seed=6).snapshot()
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_a_snapshot_brings_the_scores_back(case: Case) -> None:
    learner = case.trained()
    kept = learner.snapshot()
    with torch.no_grad():
        scores = learner(case.tokens())
        for value in learner.parameters():
            value.add_(0.5)
        assert not torch.equal(learner(case.tokens()), scores)
    other = case.learner(seed=3)
    for one in (learner, other):
        one.load(kept)
        assert one.snapshot().keys() == kept.keys()
        with torch.no_grad():
            assert torch.equal(one(case.tokens()), scores)


def test_no_method_changes_what_is_said_before_training_but_by_its_slots(load: Load) -> None:
    case = Case("lora", *load("bert"))
    learner = case.learner()
    with torch.no_grad():
        assert torch.equal(learner.features(case.tokens()), bare(case))
    assert learner.slots == 0


@pytest.mark.parametrize("family", ["bert", "llama"])
def test_the_head_starts_as_that_of_a_linear_head_alone(family: str, load: Load) -> None:
    loaded, pad_id = load(family)
    config = TrainingConfig(task="head", variant=None, seed=7)
    expected = Trainable(loaded, config, LABELS).named()
    found = Case("prompt-tuning", loaded, pad_id).learner(seed=7).named()
    heads = {name: value for name, value in found.items() if name.startswith("head.")}
    assert heads.keys() == expected.keys()
    assert all(torch.equal(value, expected[name]) for name, value in heads.items())


def test_labels_that_are_words_need_no_head(load: Load) -> None:
    learner = Case("lora", *load("t5")).learner()
    assert not any(name.startswith("head.") for name in learner.named())


def test_rows_that_leave_no_room_for_the_slots_are_refused(load: Load) -> None:
    loaded, pad_id = load("bert")
    learner = PeftLearner(PromptTuning(tokens=30), loaded, LABELS, seed=0)
    assert learner(token_batch([[5] * 10], pad_id)).shape == (1, 3)
    with pytest.raises(OptionError, match="11 tokens of text and 30 of prompt-tuning") as caught:
        learner(token_batch([[5] * 11], pad_id))
    assert caught.value.field == "max_length"


@pytest.mark.parametrize("family", ["deberta-v2", "deberta-v3"])
def test_a_backbone_without_a_cache_takes_no_prefix(family: str, load: Load) -> None:
    loaded, _ = load(family)
    with pytest.raises(OptionError, match="'deberta-v2', which accept no keys") as caught:
        PeftLearner(PrefixTuning(), loaded, LABELS, seed=0)
    assert caught.value.field == "baseline"


@pytest.mark.parametrize(
    ("family", "method", "slots", "counts"),
    [
        ("bert", PromptTuning(tokens=3), 3, Counts(3 * 16, 3 * 17)),
        ("bert", PrefixTuning(tokens=3), 3, Counts(3 * 3 * 2 * 16, 3 * 17)),
        ("bert", Lora(rank=2), 0, Counts(3 * 2 * 2 * (16 + 16), 3 * 17)),
        ("llama", PromptTuning(tokens=3), 3, Counts(3 * 16, 3 * 16)),
        # Two of four heads of width 4 have keys of their own.
        ("llama", PrefixTuning(tokens=3), 3, Counts(3 * 3 * 2 * 8, 3 * 16)),
        ("llama", Lora(rank=2), 0, Counts(3 * 2 * (16 + 16 + 16 + 8), 3 * 16)),
        ("t5", PromptTuning(tokens=3), 3, Counts(3 * 16, 0)),
        # Two decoder layers, and as much again that PEFT never reads.
        ("t5", PrefixTuning(tokens=3), 0, Counts(2 * 3 * 2 * 2 * 16, 0)),
        # Three encoder layers, and two decoder layers with attention to the encoder besides.
        ("t5", Lora(rank=2), 0, Counts(7 * 2 * 2 * (16 + 16), 0)),
    ],
)
def test_slots_and_counts(family: str, method: Any, slots: int, counts: Counts, load: Load) -> None:
    learner = PeftLearner(method, load(family)[0], LABELS, seed=0)
    assert (learner.slots, learner.counts) == (slots, counts)
    assert counts.total == sum(value.numel() for value in learner.parameters())


def test_every_decoder_layer_has_a_prefix_of_its_own(load: Load) -> None:
    case = Case("p-tuning-v2", *load("t5"))
    learner = case.trained()
    functional.cross_entropy(learner(case.tokens()), TARGETS).backward()
    gradient = learner.named()["prompt_encoder.embedding.weight"].grad
    assert gradient is not None
    parts = gradient.view(20, -1, 16).abs().sum(dim=(0, 2)) > 0
    assert parts.tolist() == [True, True, False, False] * 2


def test_what_it_is_tells_its_options() -> None:
    assert repr(Lora(rank=4)) != repr(Lora())


@pytest.mark.parametrize(
    "method", [PromptTuning(), PrefixTuning(), Lora()], ids=lambda one: one.name
)
def test_a_run_trains_it(method: Any, tiny: LoadedBackbone) -> None:
    config = TrainingConfig(task="tiny", epochs=4, batch_size=8, learning_rate=0.02, max_length=40)
    train, validation = separable(36, seed=1), separable(14, seed=2)
    learner = PeftLearner(method, tiny, train.labels, seed=0)
    assert learner.identity.startswith(repr(method))
    run = Run(tiny, config, train, validation, learner=learner)
    run.run()
    assert run.reports[-1].train_loss < 0.7 * run.reports[0].train_loss
    best = run.reports[run.best_epoch - 1].validation_accuracy
    right = [
        label == row.label for label, row in zip(run.predict(validation), validation, strict=True)
    ]
    assert sum(right) / len(right) == pytest.approx(best)


@pytest.mark.parametrize("family", ["llama", "t5"])
@pytest.mark.parametrize("name", ["prompt-tuning", "p-tuning-v2", "lora"])
def test_a_few_steps_lower_the_loss(name: str, family: str, load: Load) -> None:
    case = Case(name, *load(family))
    learner = case.learner()
    optimizer = torch.optim.Adam(learner.parameters(), lr=0.1)
    losses = []
    for _ in range(15):
        loss = functional.cross_entropy(learner(case.tokens()), TARGETS)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < 0.9 * losses[0]
