import shutil
from pathlib import Path

import pytest
import torch

from capsules.backbones.base import LoadedBackbone
from capsules.core import Reading
from capsules.executors.base import TOLERANCE, Executor
from capsules.executors.onnx.examples import example
from capsules.executors.torch import TorchExecutor
from capsules.injection import Prompts
from capsules.model import InjectedBackbone
from tests.support.backbones import tiny_bert
from tests.support.batches import addition_prompts, token_batch

TEXTS = ([2, 50, 9, 3], [2, 70, 3])


@pytest.fixture
def executor(tiny: LoadedBackbone) -> TorchExecutor:
    return TorchExecutor(tiny.backbone)


def prompts() -> Prompts:
    generator = torch.Generator().manual_seed(0)
    return addition_prompts([torch.randn(3, length, 32, generator=generator) for length in (1, 2)])


def test_it_is_an_executor(executor: TorchExecutor, tiny: LoadedBackbone) -> None:
    named: Executor = executor
    assert (named.name, named.device) == ("torch", tiny.backbone.device)
    assert named.tolerance == TOLERANCE


def test_it_answers_as_the_injected_backbone_does(
    executor: TorchExecutor, tiny: LoadedBackbone
) -> None:
    tokens = token_batch(TEXTS, pad_id=0)
    with torch.no_grad():
        expected = InjectedBackbone(tiny.backbone).features(tokens, prompts())
    got = executor.features(tokens, prompts())
    assert torch.equal(got, expected)
    assert got.dtype == torch.float32


def test_it_reads_what_it_is_told_to_read(tiny_t5: LoadedBackbone) -> None:
    tokens = token_batch(TEXTS, pad_id=0)
    reading = Reading(
        rows=torch.tensor([0, 1, 1]),
        prefixes=torch.tensor([[7], [8], [9]]),
        paths=torch.tensor([0, 1, 2, 2]),
        steps=torch.tensor([1, 0, 1, 0]),
    )
    p = torch.randn(4, 1, 32, generator=torch.Generator().manual_seed(0))
    got = TorchExecutor(tiny_t5.backbone).features(tokens, addition_prompts([p, p]), reading)
    with torch.no_grad():
        injected = InjectedBackbone(tiny_t5.backbone)
        expected = injected.features(tokens, addition_prompts([p, p]), reading)
    assert got.shape == (4, 32)
    assert torch.equal(got, expected)
    # Both paths of the second row begin where it begins.
    torch.testing.assert_close(got[1], got[3])
    assert not torch.allclose(got[2], got[0])


def test_it_runs_without_autograd(executor: TorchExecutor) -> None:
    learned = torch.zeros(3, 1, 32, requires_grad=True)
    got = executor.features(token_batch(TEXTS, pad_id=0), addition_prompts([learned, learned]))
    assert not got.requires_grad
    assert got.is_inference()
    assert torch.is_grad_enabled()


def test_a_batch_is_left_as_it_was(executor: TorchExecutor) -> None:
    tokens, capsules = token_batch(TEXTS, pad_id=0), prompts()
    before = [
        *(tokens.input_ids.clone(), tokens.attention_mask.clone()),
        *(group.tensors["capsule"].clone() for group in capsules.groups),
    ]
    executor.features(tokens, capsules)
    after = [
        *(tokens.input_ids, tokens.attention_mask),
        *(group.tensors["capsule"] for group in capsules.groups),
    ]
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch compiles for a CPU with g++")
@pytest.mark.filterwarnings("default")  # the compiler's own, of what it uses
def test_compiled_layers_answer_as_they_do_uncompiled(tmp_path: Path) -> None:
    """On a backbone of their own, since compiled layers stay so."""
    loaded = tiny_bert(tmp_path)
    batches = [
        example(loaded.backbone, lengths, shift=shift, seed=shift)
        for shift, lengths in enumerate([(3, 17, 9), (5, 30)])
    ]
    expected = [TorchExecutor(loaded.backbone).features(*batch) for batch in batches]
    compiled = TorchExecutor(loaded.backbone, compile_layers=True)
    assert compiled.name == "torch-compiled"
    for batch, features in zip(batches, expected, strict=True):
        assert float((compiled.features(*batch) - features).abs().max()) < 1e-5
