"""Attention maps against transformers' own, and against what they have to add up to."""

from pathlib import Path

import pytest
import torch

from capsules.analysis.attention import AttentionMap, attention
from capsules.analysis.figure import draw
from capsules.backbones.base import LoadedBackbone
from capsules.evaluation.runner import predict
from capsules.executors.torch import TorchExecutor
from tests.support.backbones import tiny_bert, tiny_family, words
from tests.support.capsules import random_capsule

FAMILIES = ("bert", "t5", "llama", "gemma3_text", "deberta-v2")
TEXT = {"text": words(7)}


@pytest.fixture(params=FAMILIES, scope="module")
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp(request.param)
    return tiny_bert(folder) if request.param == "bert" else tiny_family(folder, request.param)


def test_every_position_shares_out_all_of_its_attention(loaded: LoadedBackbone) -> None:
    found = attention(loaded, random_capsule(loaded.info, length=2), TEXT)
    layers, positions = loaded.info.num_layers, 2 + 9
    assert found.weights.shape == (layers, 4, positions, positions)
    assert found.weights.min() >= 0
    torch.testing.assert_close(found.weights.sum(dim=3), torch.ones(layers, 4, positions))
    assert found.names[:3] == ("capsule 1", "capsule 2", "[CLS]")
    assert found.tokens == ("[CLS]", *words(7).split(), "[SEP]")
    assert found.to_capsule.shape == found.from_capsule.shape == (layers, 4, 9)


def test_a_causal_backbone_sees_nothing_ahead(tmp_path: Path) -> None:
    loaded = tiny_family(tmp_path, "llama")
    found = attention(loaded, random_capsule(loaded.info), TEXT)
    assert found.from_capsule.max() == 0
    assert found.to_capsule.min() > 0
    assert found.names[0] == "capsule"


def test_a_capsule_that_comes_late_is_not_seen_before(tmp_path: Path) -> None:
    loaded = tiny_family(tmp_path, "t5")
    found = attention(loaded, random_capsule(loaded.info, layers="latter-half"), TEXT)
    assert found.to_capsule[:2].max() == 0
    assert found.to_capsule[2:].min() > 0


def test_looking_leaves_the_backbone_as_it_was(loaded: LoadedBackbone) -> None:
    capsule, executor = random_capsule(loaded.info), TorchExecutor(loaded.backbone)
    before = predict(loaded, executor, capsule, [TEXT])
    usual = loaded.backbone.model.config._attn_implementation
    attention(loaded, capsule, TEXT)
    assert loaded.backbone.model.config._attn_implementation == usual
    assert not any(module._forward_hooks for module in loaded.backbone.attentions)
    assert predict(loaded, executor, capsule, [TEXT]) == before


def test_the_sums_are_over_the_capsules_positions() -> None:
    weights = torch.tensor([[[[0.1, 0.2, 0.7], [0.3, 0.3, 0.4], [0.25, 0.5, 0.25]]]])
    found = AttentionMap(names=("capsule 1", "capsule 2", "a"), slots=2, weights=weights)
    assert found.to_capsule.flatten().tolist() == pytest.approx([0.75])
    assert found.from_capsule.flatten().tolist() == pytest.approx([0.55])


def test_maps_are_drawn_side_by_side(tmp_path: Path) -> None:
    loaded = tiny_bert(tmp_path / "backbone")
    maps = {
        name: attention(loaded, random_capsule(loaded.info, variant=name), TEXT)
        for name in ("addition", "task-only")
    }
    draw(maps, tmp_path / "map.png")
    data = (tmp_path / "map.png").read_bytes()
    assert data.startswith(b"\x89PNG")
    width, height = (int.from_bytes(data[at : at + 4], "big") for at in (16, 20))
    assert width > height > 300
