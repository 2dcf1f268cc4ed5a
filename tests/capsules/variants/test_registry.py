"""What every variant has to be, and how many parameters it has on the published backbones."""

from math import prod

import pytest
import torch

from capsules.artefact.checks import expected_shapes
from capsules.artefact.manifest import BackboneRef, Manifest
from capsules.core import Geometry
from capsules.errors import ArtefactError, ArtefactFault
from capsules.variants.registry import VARIANTS, variant

# Layers and hidden size of the backbones, as in their configurations.
T5_BASE, T5_LARGE = Geometry(12, 768), Geometry(24, 1024)
LLAMA_1B, QWEN_1_5B = Geometry(16, 2048), Geometry(28, 1536)
MINILM = Geometry(6, 384)


@pytest.mark.parametrize(
    ("geometry", "parameters"),
    [
        (T5_BASE, 9_216),
        (T5_LARGE, 24_576),
        (LLAMA_1B, 32_768),
        (QWEN_1_5B, 43_008),
        (MINILM, 2_304),
    ],
    ids=["t5-base", "t5-large", "llama-3.2-1b", "qwen2.5-1.5b", "minilm"],
)
def test_a_capsule_has_as_many_parameters_as_published(geometry: Geometry, parameters: int) -> None:
    shapes = variant("addition").shapes(geometry, geometry.num_layers, 1)
    assert sum(prod(shape) for shape in shapes.values()) == parameters


@pytest.mark.parametrize(
    ("geometry", "family", "head"),
    [
        (LLAMA_1B, "decoder-only", 4_096),
        (QWEN_1_5B, "decoder-only", 3_072),
        (T5_BASE, "encoder-decoder", 0),
        (MINILM, "encoder-only", 2 * 384 + 2),
    ],
    ids=["llama-3.2-1b", "qwen2.5-1.5b", "t5-base", "minilm"],
)
def test_a_head_of_two_labels_has_as_many_parameters_as_published(
    geometry: Geometry, family: str, head: int
) -> None:
    backbone = BackboneRef.model_validate(
        {
            "id": "x",
            "family": family,
            "hidden_size": geometry.hidden_size,
            "num_layers": geometry.num_layers,
            "fingerprint": "0" * 64,
        }
    )
    shapes = expected_shapes(Manifest(task="rte", backbone=backbone, labels=["no", "yes"]))
    assert sum(prod(shape) for name, shape in shapes.items() if name != "capsule") == head


@pytest.mark.parametrize("length", [1, 3])
@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_keeps_its_promises(name: str, length: int) -> None:
    form, geometry = variant(name), Geometry(num_layers=4, hidden_size=8)
    assert form.name == name
    shapes = form.shapes(geometry, 4, length)
    start = form.initial(geometry, 4, length, torch.Generator().manual_seed(1))
    again = form.initial(geometry, 4, length, torch.Generator().manual_seed(1))
    other = form.initial(geometry, 4, length, torch.Generator().manual_seed(2))
    assert {key: tuple(value.shape) for key, value in start.items()} == shapes
    assert all(value.dtype == torch.float32 for value in start.values())
    assert all(torch.equal(start[key], again[key]) for key in start)
    assert any(not torch.equal(start[key], other[key]) for key in start)
    tensors = {key: value[0].expand(5, *value[0].shape) for key, value in start.items()}
    prompt = form.prompt(tensors, torch.randn(5, 7, 8), torch.full((5, 7), 1 / 7))
    assert prompt.shape == (5, form.slots(length), 8)


def test_addition_adds_the_mean_to_each_vector() -> None:
    hidden = torch.tensor([[[1.0, 2.0], [3.0, 6.0], [100.0, 100.0]]])
    weights = torch.tensor([[0.5, 0.5, 0.0]])
    learned = torch.tensor([[[10.0, 20.0], [-1.0, -1.0]]])
    prompt = variant("addition").prompt({"capsule": learned}, hidden, weights)
    assert prompt.tolist() == [[[12.0, 24.0], [1.0, 3.0]]]


def test_another_variant_is_refused_with_those_supported() -> None:
    with pytest.raises(ArtefactError, match="choose one of: addition") as refused:
        variant("telepathy")
    assert (refused.value.code, refused.value.field) == (
        ArtefactFault.UNSUPPORTED_VARIANT,
        "variant",
    )
