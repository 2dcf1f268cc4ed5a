"""The mechanism that puts capsules in: in place and under autograd, rows, slots and masks."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from capsules.core import TokenBatch
from capsules.injection import Injection, PromptGroup, Prompts
from capsules.model import InjectedBackbone, right_padded, shared_prompts
from capsules.variants.addition import Addition
from capsules.variants.registry import VARIANTS, variant
from tests.reference import capsule as reference
from tests.reference.maths import Array
from tests.support.batches import addition_prompts, drawn_capsule, row_prompts, token_batch
from tests.support.families import FAMILIES, Subject
from tests.support.layers import layer_outputs
from tests.support.texts import text

TOLERANCE = 1e-9
CPU = torch.device("cpu")


def published(subject: Subject, length: int, seed: int = 0) -> Tensor:
    """p [N, k, D] of the published capsule."""
    generator = torch.Generator().manual_seed(seed)
    shape = (subject.num_layers, length, subject.width)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def as_array(learned: Tensor | None) -> Array | None:
    return None if learned is None else learned.detach().numpy()


def every_layer(subject: Subject) -> tuple[int, ...]:
    return tuple(range(subject.num_layers))


def run(
    subject: Subject, tokens: TokenBatch, prompts: Prompts, *, autograd: bool = False
) -> Tensor:
    with torch.set_grad_enabled(autograd):
        return InjectedBackbone(subject.backbone).features(tokens, prompts).detach()


in_place_or_not = pytest.mark.parametrize("autograd", [False, True], ids=["in-place", "autograd"])


@in_place_or_not
@pytest.mark.parametrize("length", [0, 1, 3])
def test_hidden_states_and_features_are_those_of_the_equations(
    subject: Subject, length: int, autograd: bool
) -> None:
    ids, learned = text(9), published(subject, length) if length else None
    prompts = addition_prompts([learned])
    with layer_outputs(subject.ends) as seen:
        features = run(subject, token_batch([ids], subject.pad_id), prompts, autograd=autograd)

    expected = reference.states(subject.reference, ids, as_array(learned))
    assert len(seen) == len(expected) == subject.num_layers
    for got, wanted in zip(seen, expected, strict=True):
        assert np.abs(got[0].numpy() - wanted).max() < TOLERANCE
    answer = subject.reference.read(expected[-1])
    assert np.abs(answer).max() > 0.01
    assert np.abs(features[0].numpy() - answer).max() < TOLERANCE


@pytest.mark.parametrize("form", VARIANTS)
def test_a_capsule_matters(subject: Subject, form: str) -> None:
    tokens, every = token_batch([text(4)], subject.pad_id), every_layer(subject)
    kinds = [(1, every, 0), (2, every, 0), (1, every[1:], 0)]
    if form != "instance-only":
        kinds.append((1, every, 1))
    prompts = [
        row_prompts([drawn_capsule(form, length, layers, subject.width, seed)])
        for length, layers, seed in kinds
    ]
    answers = [run(subject, tokens, one) for one in (Prompts(), *prompts)]
    for one in range(len(answers)):
        for other in range(one):
            assert (answers[one] - answers[other]).abs().max() > 1e-4, (one, other)


def test_every_element_of_the_gradient_is_that_of_the_equations(subject: Subject) -> None:
    ids, learned = text(3), published(subject, 2).requires_grad_()
    toward = np.random.default_rng(7).normal(size=subject.width)

    def objective(p: Array) -> Array:
        answer: Array = (reference.features(subject.reference, ids, p) * toward).sum()
        return answer

    prompts = shared_prompts(Addition(), 2, every_layer(subject), {"capsule": learned}, rows=1)
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
        learned = published(subject, 2).requires_grad_()
        prompts = shared_prompts(
            Addition(), 2, every_layer(subject), {"capsule": learned}, rows=len(rows)
        )
        tokens = token_batch(rows, subject.pad_id)
        InjectedBackbone(subject.backbone).features(tokens, prompts).sum().backward()
        assert learned.grad is not None
        return learned.grad

    torch.testing.assert_close(
        gradient(texts), sum(gradient([one]) for one in texts), rtol=0, atol=TOLERANCE
    )


@in_place_or_not
def test_rows_with_and_without_capsules_share_a_batch(subject: Subject, autograd: bool) -> None:
    rows = [
        (text(9), published(subject, 1)),
        (text(3, seed=1), published(subject, 3, seed=1)),
        (text(5, seed=2), None),
        (text(1, seed=3), published(subject, 1, seed=2)),
    ]
    mixed = run(
        subject,
        token_batch([ids for ids, _ in rows], subject.pad_id, width=12),
        addition_prompts([learned for _, learned in rows]),
        autograd=autograd,
    )
    for row, (ids, learned) in enumerate(rows):
        expected = reference.features(subject.reference, ids, as_array(learned))
        assert np.abs(mixed[row].numpy() - expected).max() < TOLERANCE


def test_one_shared_group_and_groups_by_row_agree(subject: Subject) -> None:
    learned = published(subject, 2)
    tokens = token_batch([text(4), text(8, seed=1)], subject.pad_id)
    prompts = shared_prompts(Addition(), 2, every_layer(subject), {"capsule": learned}, rows=2)
    by_row = run(subject, tokens, addition_prompts([learned, learned]))
    torch.testing.assert_close(run(subject, tokens, prompts), by_row, rtol=0, atol=TOLERANCE)


def test_a_pass_leaves_nothing_behind(subject: Subject) -> None:
    tokens = token_batch([text(5), text(3)], subject.pad_id)
    model = InjectedBackbone(subject.backbone)
    misfit = Prompts(
        (PromptGroup(Addition(), 1, (0,), {"capsule": torch.zeros(2, 1, 1, subject.width + 1)}),)
    )
    with torch.no_grad():
        bare = model.features(tokens, Prompts())
        injected = model.features(tokens, addition_prompts([published(subject, 1)] * 2))
        with pytest.raises(RuntimeError):
            model.features(tokens, misfit)
        again = model.features(tokens, Prompts())
    assert not torch.equal(bare, injected)
    assert torch.equal(bare, again)


def test_the_head_is_not_injected() -> None:
    learned = {"capsule": torch.zeros(3, 1, 16), "head.weight": torch.zeros(2, 16)}
    (group,) = shared_prompts(Addition(), 1, (0, 1, 2), learned, rows=4).groups
    assert {name: tensor.shape for name, tensor in group.tensors.items()} == {
        "capsule": (4, 3, 1, 16)
    }


@pytest.mark.parametrize("form", VARIANTS)
def test_a_group_takes_the_slots_of_its_variant(form: str) -> None:
    (group,) = row_prompts([drawn_capsule(form, 3, (0, 2), 16)]).groups
    assert group.slots == (4 if form == "prepending" else 3)
    assert variant(form).slots(3) == group.slots


def late(form: str, length: int, layers: tuple[int, ...]) -> reference.Capsule:
    return drawn_capsule(form, length, layers, 16)


def test_shorter_capsules_leave_the_first_slots_unused() -> None:
    prompts = row_prompts(
        [late("addition", 1, (0, 1)), None, late("prepending", 2, (2,)), late("task-only", 2, (1,))]
    )
    assert prompts.slots == 3
    masks = {
        before: prompts.slot_mask(4, CPU, before=before).int().tolist()
        for before in (0, 1, 2, 3, None)
    }
    nothing, one, two, three = [0, 0, 0], [0, 0, 1], [0, 1, 1], [1, 1, 1]
    assert masks == {
        0: [nothing, nothing, nothing, nothing],
        1: [one, nothing, nothing, nothing],
        2: [one, nothing, nothing, two],
        3: [one, nothing, three, two],
        None: [one, nothing, three, two],
    }


def test_a_capsule_is_seen_from_its_first_layer_on() -> None:
    prompts = row_prompts([late("addition", 1, (1, 3)), late("addition", 2, (2, 3))])
    injection = Injection(prompts, torch.tensor([[True, True], [True, False]]), torch.float64)
    masks = [injection.mask(layer) for layer in range(5)]
    assert [mask.int().tolist() for mask in masks] == [
        [[0, 0, 1, 1], [0, 0, 1, 0]],
        [[0, 1, 1, 1], [0, 0, 1, 0]],
        *[[[0, 1, 1, 1], [1, 1, 1, 0]]] * 3,
    ]
    # Families make an attention mask of it, once.
    assert masks[2] is masks[3] is masks[4] is injection.last_mask
    assert len({id(mask) for mask in masks}) == 3


def test_layers_without_injection_pass_the_capsule_through() -> None:
    prompts = row_prompts([late("addition", 1, (1,))])
    injection = Injection(prompts, torch.ones(1, 2, dtype=torch.bool), torch.float64)
    hidden = torch.randn(1, 3, 16, dtype=torch.float64)
    for layer in (0, 2, 3):
        assert injection.enter(layer, hidden) is hidden


def test_without_capsules_there_are_no_slots() -> None:
    assert Prompts().slots == 0
    assert Prompts().slot_mask(2, CPU).shape == (2, 0)


def test_a_group_of_all_rows_beside_another_is_our_mistake() -> None:
    subject = FAMILIES["bert"]()
    learned = {"capsule": published(subject, 1)}
    everyone = shared_prompts(Addition(), 1, (0, 1, 2), learned, rows=1).groups
    some = addition_prompts([published(subject, 2)]).groups
    with torch.no_grad(), pytest.raises(AssertionError, match="stands alone"):
        InjectedBackbone(subject.backbone).features(
            token_batch([text(5)], subject.pad_id), Prompts((*everyone, *some))
        )


def test_left_padding_becomes_right_padding() -> None:
    tokens = right_padded(token_batch([[7, 8, 9], [9, 7], [8]], pad_id=8, width=4, left=True))
    assert tokens.attention_mask.int().tolist() == [[1, 1, 1, 0], [1, 1, 0, 0], [1, 0, 0, 0]]
    real = [
        row[: mask.sum()] for row, mask in zip(tokens.input_ids, tokens.attention_mask, strict=True)
    ]
    assert [row.tolist() for row in real] == [[7, 8, 9], [9, 7], [8]]


def test_right_padding_is_left_alone() -> None:
    tokens = token_batch([[7, 8, 9], [9]], pad_id=0)
    assert right_padded(tokens) is tokens
