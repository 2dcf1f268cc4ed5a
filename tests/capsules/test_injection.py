"""The injection of every family against an independent reference, in float64."""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from capsules.core import TokenBatch
from capsules.injection import Injector, PromptGroup, Prompts
from capsules.model import InjectedBackbone, shared_prompts
from capsules.variants.addition import Addition
from tests.reference import capsule as reference
from tests.reference.maths import Array
from tests.support.batches import addition_prompts, token_batch
from tests.support.families import FIRST_WORD, VOCABULARY, Subject, bert, llama

TOLERANCE = 1e-9
WIDTH = 16
LAYERS = 3


def text(length: int, seed: int = 0) -> list[int]:
    generator = np.random.default_rng(seed)
    return [int(token) for token in generator.integers(FIRST_WORD, VOCABULARY, length)]


def capsule(length: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(LAYERS, length, WIDTH, generator=generator, dtype=torch.float64)


def as_array(learned: Tensor | None) -> Array | None:
    return None if learned is None else learned.numpy()


@contextmanager
def layer_outputs(layers: Sequence[nn.Module]) -> Iterator[list[Tensor]]:
    """Copies of what each layer puts out, since the next one overwrites it."""
    seen: list[Tensor] = []

    def keep(_layer: nn.Module, _inputs: object, output: Tensor | tuple[Tensor, ...]) -> None:
        seen.append((output if isinstance(output, Tensor) else output[0]).clone())

    handles = [layer.register_forward_hook(keep) for layer in layers]
    yield seen
    for handle in handles:
        handle.remove()


def run(
    subject: Subject, tokens: TokenBatch, prompts: Prompts, *, autograd: bool = False
) -> Tensor:
    with torch.set_grad_enabled(autograd):
        return InjectedBackbone(subject.backbone).features(tokens, prompts).detach()


@pytest.mark.parametrize("autograd", [False, True], ids=["in-place", "autograd"])
@pytest.mark.parametrize("length", [0, 1, 2, 3])
def test_hidden_states_and_features_are_those_of_the_equations(
    subject: Subject, length: int, autograd: bool
) -> None:
    ids, learned = text(9), capsule(length) if length else None
    prompts = addition_prompts([learned])
    with layer_outputs(subject.backbone.layers) as seen:
        features = run(subject, token_batch([ids], subject.pad_id), prompts, autograd=autograd)

    expected = reference.states(subject.reference, ids, as_array(learned))
    assert len(seen) == len(expected) == LAYERS
    for got, wanted in zip(seen, expected, strict=True):
        assert np.abs(got[0].numpy() - wanted).max() < TOLERANCE
    answer = subject.reference.read(expected[-1])
    assert np.abs(answer).max() > 0.01
    assert np.abs(features[0].numpy() - answer).max() < TOLERANCE


def test_a_capsule_matters(subject: Subject) -> None:
    tokens = token_batch([text(9)], subject.pad_id)
    answers = [
        run(subject, tokens, addition_prompts([learned]))
        for learned in (None, capsule(1), capsule(1, seed=1), capsule(2))
    ]
    for one in range(len(answers)):
        for other in range(one):
            assert (answers[one] - answers[other]).abs().max() > 1e-3


@pytest.mark.parametrize("length", [1, 2])
def test_gradient_is_that_of_the_equations(subject: Subject, length: int) -> None:
    ids, learned = text(6), capsule(length).requires_grad_()
    toward = np.random.default_rng(7).normal(size=WIDTH)

    def objective(p: Array) -> Array:
        answer: Array = (reference.features(subject.reference, ids, p) * toward).sum()
        return answer

    prompts = shared_prompts(Addition(), length, {"capsule": learned}, rows=1)
    features = InjectedBackbone(subject.backbone).features(
        token_batch([ids], subject.pad_id), prompts
    )
    (features[0] * torch.from_numpy(toward)).sum().backward()
    assert learned.grad is not None
    got = learned.grad.numpy()

    expected = reference.gradient(objective, learned.detach().numpy())
    assert np.abs(expected).max() > 1e-3
    assert np.abs(got - expected).max() < TOLERANCE

    # Central differences know nothing of the reference's complex arithmetic.
    along = np.random.default_rng(8).normal(size=got.shape)
    measured = reference.slope(objective, learned.detach().numpy(), along, step=1e-5)
    assert measured == pytest.approx(float((got * along).sum()), abs=1e-6)


def test_gradients_of_rows_add_up(subject: Subject) -> None:
    texts = [text(4), text(9, seed=1), text(7, seed=2)]

    def gradient(rows: Sequence[Sequence[int]]) -> Tensor:
        learned = capsule(2).requires_grad_()
        prompts = shared_prompts(Addition(), 2, {"capsule": learned}, rows=len(rows))
        tokens = token_batch(rows, subject.pad_id)
        InjectedBackbone(subject.backbone).features(tokens, prompts).sum().backward()
        assert learned.grad is not None
        return learned.grad

    torch.testing.assert_close(
        gradient(texts), sum(gradient([one]) for one in texts), rtol=0, atol=TOLERANCE
    )


@pytest.mark.parametrize("autograd", [False, True], ids=["in-place", "autograd"])
def test_a_row_is_the_same_alone_padded_and_among_others(subject: Subject, autograd: bool) -> None:
    rows = [
        (text(9), capsule(1)),
        (text(3, seed=1), capsule(3, seed=1)),
        (text(5, seed=2), None),
        (text(1, seed=3), capsule(1, seed=2)),
        (text(7, seed=4), capsule(2, seed=3)),
        (text(9), capsule(3, seed=4)),
    ]
    mixed = run(
        subject,
        token_batch([ids for ids, _ in rows], subject.pad_id, width=12),
        addition_prompts([learned for _, learned in rows]),
        autograd=autograd,
    )
    for row, (ids, learned) in enumerate(rows):
        prompts = addition_prompts([learned])
        alone = run(subject, token_batch([ids], subject.pad_id), prompts)
        padded = run(subject, token_batch([ids], subject.pad_id, width=20), prompts)
        expected = reference.features(subject.reference, ids, as_array(learned))
        for got in (alone[0], padded[0], mixed[row]):
            assert np.abs(got.numpy() - expected).max() < TOLERANCE


def test_left_padding_is_right_padding_where_positions_are_counted() -> None:
    subject = llama()
    rows = [(text(9), capsule(1)), (text(3, 1), capsule(3, 1)), (text(5, 2), None)]
    prompts = addition_prompts([learned for _, learned in rows])
    tokens = token_batch([ids for ids, _ in rows], subject.pad_id, width=11, left=True)
    mixed = run(subject, tokens, prompts)
    for row, (ids, learned) in enumerate(rows):
        expected = reference.features(subject.reference, ids, as_array(learned))
        assert np.abs(mixed[row].numpy() - expected).max() < TOLERANCE


def test_one_shared_group_and_groups_by_row_agree(subject: Subject) -> None:
    learned = capsule(2)
    tokens = token_batch([text(4), text(8, seed=1)], subject.pad_id)
    shared = run(subject, tokens, shared_prompts(Addition(), 2, {"capsule": learned}, rows=2))
    by_row = run(subject, tokens, addition_prompts([learned, learned]))
    torch.testing.assert_close(shared, by_row, rtol=0, atol=TOLERANCE)


def test_the_head_is_not_injected() -> None:
    learned = {"capsule": capsule(1), "head.weight": torch.zeros(2, WIDTH)}
    (group,) = shared_prompts(Addition(), 1, learned, rows=4).groups
    assert {name: tensor.shape for name, tensor in group.tensors.items()} == {
        "capsule": (4, LAYERS, 1, WIDTH)
    }


def test_shorter_capsules_leave_the_first_slots_unused() -> None:
    prompts = addition_prompts([capsule(1), None, capsule(3)])
    assert prompts.slots == 3
    assert prompts.slot_mask(3, torch.device("cpu")).tolist() == [
        [False, False, True],
        [False, False, False],
        [True, True, True],
    ]


def test_without_capsules_there_are_no_slots() -> None:
    assert Prompts().slots == 0
    assert Prompts().slot_mask(2, torch.device("cpu")).shape == (2, 0)


def test_hooks_are_inert_outside_a_pass() -> None:
    subject = bert()
    tokens = token_batch([text(5)], subject.pad_id)
    bare = run(subject, tokens, Prompts())
    model = InjectedBackbone(subject.backbone)
    with torch.no_grad():
        injected = model.features(tokens, addition_prompts([capsule(1)]))
        again = model.features(tokens, Prompts())
    assert not torch.equal(bare, injected)
    assert torch.equal(bare, again)


def test_two_models_on_one_backbone_do_not_meet() -> None:
    subject = bert()
    tokens, prompts = token_batch([text(5)], subject.pad_id), addition_prompts([capsule(2)])
    alone = run(subject, tokens, prompts)
    models = [InjectedBackbone(subject.backbone) for _ in range(2)]
    with torch.no_grad():
        for model in models:
            assert torch.equal(model.features(tokens, prompts), alone)


def test_a_pass_that_fails_leaves_the_backbone_bare() -> None:
    subject = bert()
    tokens = token_batch([text(5)], subject.pad_id)
    bare = run(subject, tokens, Prompts())
    model = InjectedBackbone(subject.backbone)
    misfit = Prompts((PromptGroup(Addition(), 1, {"capsule": torch.zeros(1, LAYERS, 1, 7)}),))
    with torch.no_grad():
        with pytest.raises(RuntimeError):
            model.features(tokens, misfit)
        assert torch.equal(model.features(tokens, Prompts()), bare)


def test_a_second_pass_inside_a_pass_is_our_mistake() -> None:
    injector = Injector([nn.Identity()])
    mask = torch.ones(1, 3, dtype=torch.bool)
    prompts = addition_prompts([capsule(1)])
    with (
        injector.active(prompts, mask, torch.float32),
        pytest.raises(AssertionError, match="another forward pass"),
        injector.active(prompts, mask, torch.float32),
    ):
        pass


def test_a_group_of_all_rows_beside_another_is_our_mistake() -> None:
    subject = bert()
    everyone = shared_prompts(Addition(), 1, {"capsule": capsule(1)}, rows=1).groups
    some = addition_prompts([capsule(2)]).groups
    with torch.no_grad(), pytest.raises(AssertionError, match="stands alone"):
        InjectedBackbone(subject.backbone).features(
            token_batch([text(5)], subject.pad_id), Prompts((*everyone, *some))
        )


def test_hooks_go_with_the_model() -> None:
    subject = bert()
    layer = subject.backbone.layers[0]
    before = len(layer._forward_pre_hooks)
    model = InjectedBackbone(subject.backbone)
    assert len(layer._forward_pre_hooks) == before + 1
    del model
    gc.collect()
    assert len(layer._forward_pre_hooks) == before


def test_hooks_can_be_taken_off() -> None:
    layer = nn.Identity()
    injector = Injector([layer])
    injector.remove()
    assert not layer._forward_pre_hooks
