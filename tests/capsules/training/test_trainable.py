import pytest
import torch

from capsules.backbones.base import LoadedBackbone
from capsules.model import InjectedBackbone
from capsules.training.trainable import Trainable
from capsules.variants.addition import Addition
from tests.support.batches import token_batch


@pytest.fixture
def trainable(tiny: LoadedBackbone) -> Trainable:
    return Trainable(tiny.info, Addition(), length=2, labels=4, seed=0)


def test_its_tensors_have_the_names_of_the_capsule_file(trainable: Trainable) -> None:
    assert {name: tuple(value.shape) for name, value in trainable.named().items()} == {
        "capsule": (3, 2, 32),
        "head.weight": (4, 32),
        "head.bias": (4,),
    }
    assert all(value.requires_grad for value in trainable.parameters())
    assert all(value.dtype == torch.float32 for value in trainable.parameters())
    assert trainable.slots == 2


def test_a_head_alone_takes_no_slots(tiny: LoadedBackbone) -> None:
    head = Trainable(tiny.info, None, length=2, labels=4, seed=0)
    assert head.named().keys() == {"head.weight", "head.bias"}
    assert head.slots == head.prompts(3).slots == 0


def test_start_values_depend_on_the_seed_alone(tiny: LoadedBackbone) -> None:
    def start(seed: int) -> torch.Tensor:
        torch.rand(5)
        return Trainable(tiny.info, Addition(), length=1, labels=2, seed=seed).named()["capsule"]

    assert torch.equal(start(1), start(1))
    assert not torch.equal(start(1), start(2))


def test_a_snapshot_does_not_follow(trainable: Trainable) -> None:
    snapshot = trainable.snapshot()
    kept = {name: value.clone() for name, value in snapshot.items()}
    with torch.no_grad():
        for value in trainable.parameters():
            value.add_(1)
    assert all(torch.equal(value, kept[name]) for name, value in snapshot.items())
    trainable.load(snapshot)
    assert all(torch.equal(value, kept[name]) for name, value in trainable.named().items())
    assert all(value.requires_grad for value in trainable.parameters())


def test_gradients_reach_every_tensor_and_no_other(
    trainable: Trainable, tiny: LoadedBackbone
) -> None:
    tokens = token_batch([[2, 9, 50, 3], [2, 60, 3]], pad_id=0)
    scores = trainable(InjectedBackbone(tiny.backbone), tokens)
    assert scores.shape == (2, 4)
    torch.nn.functional.cross_entropy(scores, torch.tensor([1, 3])).backward()
    for name, value in trainable.named().items():
        assert value.grad is not None, name
        assert value.grad.abs().max() > 0, name
    assert all(parameter.grad is None for parameter in tiny.backbone.model.parameters())
