"""The packed pass against the equations, in float64, for every family that packs."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from capsules.backbones.attention import PACKED, packing
from capsules.core import Reading
from capsules.injection import Prompts
from capsules.layers import LayerChoice
from capsules.model import InjectedBackbone
from capsules.packing.feed import KEPT_POSITIONS, Packer
from capsules.packing.graph import PackedGraph
from tests.reference import capsule as reference
from tests.reference.capsule import Capsule
from tests.support.batches import VARIANTS, drawn_capsule, mixed_rows, row_prompts, token_batch
from tests.support.families import FAMILIES, Subject
from tests.support.texts import text

TOLERANCE = 1e-9
CHOICES: tuple[LayerChoice, ...] = ("all", "input", "first-half", "latter-half", "odd", [2, 3])


OWN_ATTENTION = {"deberta-v2", "deberta-v3"}


@pytest.fixture(scope="module", params=sorted(set(FAMILIES) - OWN_ATTENTION))
def packable(request: pytest.FixtureRequest) -> Subject:
    """A tiny backbone of every family that packs, float64."""
    return FAMILIES[request.param]()


def test_all_pack_but_those_with_an_attention_of_their_own() -> None:
    packs = {name for name, make in FAMILIES.items() if make().backbone.packs}
    assert packs == set(FAMILIES) - OWN_ATTENTION


def run(
    subject: Subject,
    texts: Sequence[Sequence[int]],
    prompts: Prompts,
    reading: Reading | None = None,
    *,
    left: bool = False,
    packer: Packer | None = None,
) -> Tensor:
    packer = packer or Packer(subject.backbone, np.float64)
    feed = packer.pack(token_batch(texts, subject.pad_id, left=left), prompts, reading)
    with torch.no_grad(), packing(subject.backbone.model):
        graph = PackedGraph(subject.backbone).eval()
        features: Tensor = graph({name: torch.tensor(value) for name, value in feed.items()})
    return features


def difference(got: Tensor, expected: np.ndarray) -> float:
    assert got.shape == expected.shape
    return float(np.abs(got.numpy() - expected).max())


@pytest.mark.parametrize(
    ("form", "choice", "length"),
    [
        pytest.param(form, choice, length, id=f"{form}-{choice}-{length}")
        for form, choice, length in product(VARIANTS, CHOICES, (1, 2))
    ],
)
def test_features_are_those_of_the_equations(
    packable: Subject, form: str, choice: LayerChoice, length: int
) -> None:
    layers = reference.chosen(choice, packable.num_layers)
    capsule = drawn_capsule(form, length, layers, packable.width)
    got = run(packable, [text(5)], row_prompts([capsule]))
    expected = reference.features(packable.reference, text(5), capsule)
    assert np.abs(expected).max() > 0.01
    assert difference(got[0], expected) < TOLERANCE


@pytest.mark.parametrize("left", [False, True])
def test_a_row_is_the_same_among_others(packable: Subject, left: bool) -> None:
    rows = mixed_rows(packable.num_layers, packable.width)
    got = run(packable, [ids for ids, _ in rows], row_prompts([one for _, one in rows]), left=left)
    for row, (ids, capsule) in enumerate(rows):
        expected = reference.features(packable.reference, ids, capsule)
        assert difference(got[row], expected) < TOLERANCE, row


def test_rows_without_capsules_run_on_the_bare_backbone(packable: Subject) -> None:
    texts = [text(4, 1), text(7, 2)]
    got = run(packable, texts, Prompts())
    for row, ids in enumerate(texts):
        expected = reference.features(packable.reference, ids, None)
        assert difference(got[row], expected) < TOLERANCE


def test_what_is_kept_for_single_rows_is_kept_by_their_shape(packable: Subject) -> None:
    packer = Packer(packable.backbone, np.float64)
    every = tuple(range(packable.num_layers))
    capsules: list[Capsule | None] = [
        drawn_capsule(form, length, layers, packable.width, seed)
        for seed, (form, length, layers) in enumerate(
            product(VARIANTS, (1, 2), (every, every[1:], every[:1]))
        )
    ]
    capsules += [None, drawn_capsule("addition", 1, every, packable.width, 99)]
    for again in range(2):
        for seed, capsule in enumerate(capsules):
            ids = text(5, 10 * again + seed)
            got = run(packable, [ids], row_prompts([capsule]), packer=packer)
            expected = reference.features(packable.reference, ids, capsule)
            assert difference(got[0], expected) < TOLERANCE, capsule
    assert packer.kept_frame.cache_info().hits > len(capsules)


def test_nothing_is_kept_for_rows_that_are_long(packable: Subject) -> None:
    packer = Packer(packable.backbone, np.float64)
    for size, kept in ((KEPT_POSITIONS, 1), (KEPT_POSITIONS + 1, 0)):
        packer.kept_frame.cache_clear()
        packer.pack(token_batch([text(size)], packable.pad_id), Prompts())
        assert packer.kept_frame.cache_info().currsize == kept


def test_long_and_short_rows_share_a_batch(packable: Subject) -> None:
    """The longest is beyond the least width of a bin."""
    texts = [text(size, seed) for seed, size in enumerate((40, 2, 3, 17, 36))]
    layers = tuple(range(packable.num_layers))
    capsules: list[Capsule | None] = [
        drawn_capsule("addition", 1, layers, packable.width, seed) for seed in range(5)
    ]
    got = run(packable, texts, row_prompts(capsules))
    for row, (ids, capsule) in enumerate(zip(texts, capsules, strict=True)):
        expected = reference.features(packable.reference, ids, capsule)
        assert difference(got[row], expected) < TOLERANCE


@pytest.mark.parametrize("family", ["t5", "t5-v1.1"])
def test_words_are_read_wherever_they_part(family: str) -> None:
    subject = FAMILIES[family]()
    texts = [text(4, 1), text(7, 2), text(2, 3)]
    layers = tuple(range(subject.num_layers))
    prompts = row_prompts(
        [drawn_capsule("addition", 1, layers, subject.width, s) for s in range(3)]
    )
    reading = Reading(
        rows=torch.tensor([0, 0, 2]),
        prefixes=torch.tensor([[5, 6], [5, 9], [8, 0]]),
        paths=torch.tensor([0, 1, 0, 2]),
        steps=torch.tensor([0, 2, 1, 1]),
    )
    got = run(subject, texts, prompts, reading)
    with torch.no_grad():
        padded = InjectedBackbone(subject.backbone).features(
            token_batch(texts, subject.pad_id), prompts, reading
        )
    assert float((got - padded).abs().max()) < TOLERANCE


def test_a_model_is_as_it_was_after_packing(packable: Subject) -> None:
    model = packable.backbone.model
    before = model.config._attn_implementation
    with suppress(KeyError), packing(model):
        assert model.config._attn_implementation == PACKED
        raise KeyError
    assert model.config._attn_implementation == before
