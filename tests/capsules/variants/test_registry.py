"""What every variant has to be, and how many parameters it has on the published backbones."""

from collections.abc import Mapping
from math import prod

import pytest
import torch
from torch import Tensor

from capsules.artefact.checks import expected_shapes
from capsules.artefact.manifest import BackboneRef, Manifest
from capsules.core import Geometry
from capsules.errors import ArtefactError, ArtefactFault
from capsules.functional import pool_weights
from capsules.variants.pool import Pool
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
    assert form.slots(length) == (length + 1 if name == "prepending" else length)
    shapes = form.shapes(geometry, 4, length)
    start = form.initial(geometry, 4, length, torch.Generator().manual_seed(1))
    again = form.initial(geometry, 4, length, torch.Generator().manual_seed(1))
    other = form.initial(geometry, 4, length, torch.Generator().manual_seed(2))
    assert {key: tuple(value.shape) for key, value in start.items()} == shapes
    assert all(value.dtype == torch.float32 for value in start.values())
    assert all(torch.equal(start[key], again[key]) for key in start)
    # What only has a mean has nothing to draw.
    assert any(not torch.equal(start[key], other[key]) for key in start) == (len(start) > 0)
    tensors = {key: value[0].expand(5, *value[0].shape) for key, value in start.items()}
    pool = Pool(torch.randn(5, 7, 8), torch.full((5, 7), 1 / 7))
    prompt = form.prompt(tensors, pool, length)
    assert prompt.shape == (5, form.slots(length), 8)


@pytest.mark.parametrize("injections", [1, 3])
@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("addition", {}),
        ("prepending", {}),
        ("task-only", {}),
        ("extraction", {"extraction.weight": (6, 5), "extraction.bias": (6,)}),
        ("projection", {"projection.down": (8, 6), "projection.up": (6, 8)}),
    ],
)
def test_every_injection_has_tensors_of_its_own(
    name: str, own: Mapping[str, tuple[int, ...]], injections: int
) -> None:
    shapes = variant(name).shapes(Geometry(num_layers=9, hidden_size=6), injections, 2)
    assert shapes == {
        "capsule": (injections, 2, 6),
        **{tensor: (injections, *shape) for tensor, shape in own.items()},
    }


def test_without_learned_vectors_there_are_no_tensors() -> None:
    assert variant("instance-only").shapes(Geometry(9, 6), 3, 2) == {}


# Two rows of width 2; what stands outside the mask must not matter. Means: (2, 4) and (-6, 1).
HIDDEN = torch.tensor([[[1.0, 2], [3, 6], [100, 100]], [[-6, 1], [100, -100], [50, 7]]])
MASK = torch.tensor([[True, True, False], [True, False, False]])
LEARNED = torch.tensor([[[10.0, 20], [-1, -1]], [[0.5, 0.25], [7, 7]]])


def prompt_of(name: str, **tensors: Tensor) -> list[list[list[float]]]:
    """The tokens of two rows with a capsule of two each; dots as double underscores."""
    named = {key.replace("__", "."): value for key, value in tensors.items()}
    pool = Pool(HIDDEN, pool_weights(MASK, torch.float32))
    prompt: list[list[list[float]]] = variant(name).prompt(named, pool, 2).tolist()
    return prompt


def test_addition_adds_the_mean_to_each_vector() -> None:
    assert prompt_of("addition", capsule=LEARNED) == [
        [[12, 24], [1, 3]],
        [[-5.5, 1.25], [1, 8]],
    ]


def test_prepending_puts_the_mean_before_the_vectors() -> None:
    assert prompt_of("prepending", capsule=LEARNED) == [
        [[2, 4], [10, 20], [-1, -1]],
        [[-6, 1], [0.5, 0.25], [7, 7]],
    ]


def test_task_only_has_no_mean() -> None:
    assert prompt_of("task-only", capsule=LEARNED) == LEARNED.tolist()


def test_instance_only_has_nothing_but_the_mean() -> None:
    assert prompt_of("instance-only") == [[[2, 4], [2, 4]], [[-6, 1], [-6, 1]]]


def test_extraction_adds_the_mean_of_a_convolution() -> None:
    # Of the first row: b + what precedes a token by one (0 then x_1) + 10 times what follows by
    # two (nothing). Of the second: each token of its one, times 3, in the first channel only.
    weight = torch.tensor(
        [[[0.0, 1, 0, 0, 10], [0, 0, 0, 0, 0]], [[9, 9, 3, 9, 9], [9, 9, 0, 9, 9]]]
    )
    bias = torch.tensor([[100.0, 200], [0, -1]])
    got = prompt_of("extraction", capsule=LEARNED, extraction__weight=weight, extraction__bias=bias)
    assert got == [
        [[10 + 100.5, 20 + 200], [-1 + 100.5, -1 + 200]],
        [[0.5 - 18, 0.25 - 1], [7 - 18, 7 - 1]],
    ]


def test_projection_adds_the_mapped_mean() -> None:
    # Of rank 8, of which two are used: V takes sum and difference of the mean, U doubles the first
    # and swaps.
    down, up = torch.zeros(2, 8, 2), torch.zeros(2, 2, 8)
    down[:, 0], down[:, 7] = torch.tensor([1.0, 1]), torch.tensor([1.0, -1])
    up[:, 1, 0], up[:, 0, 7] = 2, 1
    got = prompt_of("projection", capsule=LEARNED, projection__down=down, projection__up=up)
    assert got == [
        [[10 - 2, 20 + 12], [-1 - 2, -1 + 12]],
        [[0.5 - 7, 0.25 - 10], [7 - 7, 7 - 10]],
    ]


def start_of(name: str, seed: int = 0) -> list[list[list[float]]]:
    """The first layer's tokens of a capsule that has not been trained yet."""
    generator = torch.Generator().manual_seed(seed)
    start = variant(name).initial(Geometry(3, 2), 3, 2, generator)
    tensors = {key: value[:1].expand(2, *value.shape[1:]) for key, value in start.items()}
    return prompt_of(name, **{key.replace(".", "__"): value for key, value in tensors.items()})


def test_extraction_starts_as_addition_does() -> None:
    assert start_of("extraction") == start_of("addition")


def test_projection_starts_without_an_instance_term() -> None:
    assert start_of("projection") == start_of("task-only")


@pytest.mark.parametrize(
    "name", ["addition", "prepending", "extraction", "projection", "task-only"]
)
def test_learned_vectors_start_near_zero(name: str) -> None:
    start = variant(name).initial(Geometry(12, 512), 12, 2, torch.Generator().manual_seed(0))
    assert start["capsule"].mean().item() == pytest.approx(0, abs=1e-3)
    assert start["capsule"].std().item() == pytest.approx(0.02, rel=0.02)


def test_another_variant_is_refused_with_those_supported() -> None:
    with pytest.raises(ArtefactError, match="choose one of: addition") as refused:
        variant("telepathy")
    assert (refused.value.code, refused.value.field) == (
        ArtefactFault.UNSUPPORTED_VARIANT,
        "variant",
    )
