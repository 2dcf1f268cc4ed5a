"""Every family, variant, choice of layers and length against the equations, in float64."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from capsules import zoo
from capsules.artefact.file import Capsule as CapsuleFile, parse
from capsules.artefact.manifest import Manifest
from capsules.artefact.reference import reference as backbone_reference
from capsules.backbones.base import LoadedBackbone
from capsules.backbones.load import load
from capsules.core import TokenBatch
from capsules.evaluation.runner import encode
from capsules.injection import Prompts
from capsules.layers import LayerChoice, injected_layers
from capsules.model import InjectedBackbone, pad, shared_prompts
from capsules.variants.registry import variant
from tests.reference import capsule as reference
from tests.reference.bert import Bert
from tests.reference.capsule import Capsule
from tests.reference.maths import Array
from tests.support import claimed
from tests.support.batches import (
    VARIANTS,
    drawn_capsule,
    mixed_rows,
    row_prompts,
    token_batch,
    torch_tensors,
)
from tests.support.families import Subject
from tests.support.gemma import MISSING, gemma_reference, located
from tests.support.layers import layer_outputs
from tests.support.texts import CLOSING, OPENING, spelled, text, tokeniser

TOLERANCE = 1e-9
CHOICES: tuple[LayerChoice, ...] = (
    *("all", "input", "first-half", "latter-half", "odd"),
    [2, 3],
)
LENGTHS = (1, 2)
# Longer than the windows, short enough that two of them reach from its end to the capsule.
TEXT = text(5)


def difference(got: Tensor, expected: Array) -> float:
    assert got.shape == expected.shape
    return float(np.abs(got.detach().numpy() - expected).max())


def run(subject: Subject, tokens: TokenBatch, prompts: Prompts) -> Tensor:
    with torch.no_grad():
        return InjectedBackbone(subject.backbone).features(tokens, prompts)


def check_gradients(
    subject: Subject,
    ids: Sequence[int],
    capsule: Capsule,
    learned: Mapping[str, Tensor],
    toward: Array,
) -> None:
    """Of ``features * toward``, in a random direction of each tensor."""
    generator = np.random.default_rng(8)
    for name, tensor in learned.items():
        along = generator.normal(size=tensor.shape)

        def objective(value: Array, name: str = name) -> Array:
            moved = reference.with_tensor(capsule, name, value)
            answer: Array = (reference.features(subject.reference, ids, moved) * toward).sum()
            return answer

        expected = reference.derivative(objective, capsule.tensors[name], along)
        assert abs(expected) > 1e-6, name
        assert tensor.grad is not None, name
        got = float((tensor.grad.numpy() * along).sum())
        assert got == pytest.approx(expected, rel=TOLERANCE, abs=TOLERANCE), name


@pytest.mark.parametrize(
    ("form", "choice", "length"),
    [
        pytest.param(form, choice, length, id=f"{form}-{choice}-{length}")
        for form, choice, length in product(VARIANTS, CHOICES, LENGTHS)
    ],
)
def test_states_features_and_gradients_are_those_of_the_equations(
    subject: Subject, form: str, choice: LayerChoice, length: int
) -> None:
    layers = reference.chosen(choice, subject.num_layers)
    capsule = drawn_capsule(form, length, layers, subject.width)
    learned = {name: tensor.requires_grad_() for name, tensor in torch_tensors(capsule).items()}
    injected = injected_layers(choice, subject.num_layers)
    with layer_outputs(subject.ends) as seen:
        features = InjectedBackbone(subject.backbone).features(
            token_batch([TEXT], subject.pad_id),
            shared_prompts(variant(form), length, injected, learned, rows=1),
        )

    expected = reference.states(subject.reference, TEXT, capsule)
    for got, wanted in zip(seen, expected, strict=True):
        # Before the first injection there are slots that nothing looks at.
        assert difference(got[0, -len(wanted) :], wanted) < TOLERANCE
    assert difference(features[0], subject.reference.read(expected[-1])) < TOLERANCE

    if learned:
        toward = np.random.default_rng(7).normal(size=subject.width)
        (features[0] * torch.from_numpy(toward)).sum().backward()
        check_gradients(subject, TEXT, capsule, learned, toward)


def test_a_row_is_the_same_alone_padded_and_among_others(subject: Subject) -> None:
    rows = mixed_rows(subject.num_layers, subject.width)
    texts, capsules = [ids for ids, _ in rows], [capsule for _, capsule in rows]
    pad_id = subject.pad_id
    together = [
        run(subject, token_batch(texts, pad_id, width=width, left=left), row_prompts(capsules))
        for width, left in ((9, False), (12, False), (9, True), (12, True))
    ]
    for row, (ids, capsule) in enumerate(rows):
        expected = reference.features(subject.reference, ids, capsule)
        assert np.abs(expected).max() > 0.01
        alone = [
            run(subject, token_batch([ids], pad_id, width=width, left=left), row_prompts([capsule]))
            for width, left in ((len(ids), False), (14, False), (14, True))
        ]
        for got in (*(one[row] for one in together), *(one[0] for one in alone)):
            assert difference(got, expected) < TOLERANCE, row


def test_real_positions_of_a_mixed_batch_hold_what_they_hold_alone(subject: Subject) -> None:
    rows = mixed_rows(subject.num_layers, subject.width)
    prompts = row_prompts([capsule for _, capsule in rows])
    tokens = token_batch([ids for ids, _ in rows], subject.pad_id, width=11)
    with layer_outputs(subject.ends) as seen:
        run(subject, tokens, prompts)
    for row, (ids, capsule) in enumerate(rows):
        expected = reference.states(subject.reference, ids, capsule)
        for got, wanted in zip(seen, expected, strict=True):
            # A capsule ends where its text begins.
            end = prompts.slots + len(ids)
            assert difference(got[row, end - len(wanted) : end], wanted) < TOLERANCE, row


def test_each_row_of_a_mixed_batch_has_the_gradients_of_its_own_capsule(subject: Subject) -> None:
    rows = mixed_rows(subject.num_layers, subject.width)
    learned: list[dict[str, Tensor]] = [
        {}
        if capsule is None
        else {name: tensor.requires_grad_() for name, tensor in torch_tensors(capsule).items()}
        for _, capsule in rows
    ]
    prompts = row_prompts([capsule for _, capsule in rows], learned)
    tokens = token_batch([ids for ids, _ in rows], subject.pad_id, width=11)
    features = InjectedBackbone(subject.backbone).features(tokens, prompts)
    toward = np.random.default_rng(7).normal(size=(len(rows), subject.width))
    (features * torch.from_numpy(toward)).sum().backward()
    checked = 0
    for row, (ids, capsule) in enumerate(rows):
        # The last token of a long text is out of reach of a capsule that comes late, if all that
        # follows has windows.
        if capsule is not None and len(ids) <= 5:
            check_gradients(subject, ids, capsule, learned[row], toward[row])
            checked += len(learned[row])
    assert checked > 6


@pytest.mark.parametrize("own", [True, False], ids=["its own", "another"])
def test_a_text_may_hold_the_token_that_pads(subject: Subject, own: bool) -> None:
    """Decoders are often padded with the token that ends texts, and a text may spell `<pad>`."""
    padding = subject.pad_id if own else 11
    texts = ([7, padding, 9, padding], [padding], [8, 30, 21, 6, 9, 17])
    layers = tuple(range(subject.num_layers))
    capsules = [
        drawn_capsule("addition", length, layers, subject.width, length) for length in (2, 1, 1)
    ]
    for left in (False, True):
        tokens = token_batch(texts, padding, width=8, left=left)
        got = run(subject, tokens, row_prompts(capsules))
        for row, (ids, capsule) in enumerate(zip(texts, capsules, strict=True)):
            expected = reference.features(subject.reference, ids, capsule)
            assert difference(got[row], expected) < TOLERANCE


@pytest.mark.parametrize(
    ("form", "length", "choice", "room"),
    [("prepending", 2, "all", 7), ("addition", 1, [2, 3], 9), ("extraction", 3, "odd", 7)],
    ids=["prepending", "addition", "extraction"],
)
def test_a_text_is_cut_where_the_capsule_leaves_no_room(
    subject: Subject, form: str, length: int, choice: LayerChoice, room: int
) -> None:
    backbone = subject.backbone
    info = replace(
        claimed.INFO,
        family=backbone.family,
        hidden_size=subject.width,
        num_layers=subject.num_layers,
    )
    loaded = LoadedBackbone(info=info, backbone=backbone, tokeniser=tokeniser(subject.pad_id))
    manifest = Manifest.model_validate(
        {
            "task": "cut",
            "backbone": backbone_reference(info),
            "variant": form,
            "length": length,
            "layers": choice,
            "labels": ["a", "b"],
            "max_length": 12,
        }
    )
    layers = reference.chosen(choice, subject.num_layers)
    capsule = drawn_capsule(form, length, layers, subject.width)
    tensors = torch_tensors(capsule)
    long, short = text(30), text(3, seed=1)
    encodings = encode(
        loaded,
        CapsuleFile(manifest, tensors),
        [{"text": spelled(long)}, {"text": spelled(short)}],
    )
    assert [one.truncated for one in encodings] == [True, False]
    got = run(
        subject,
        pad(encodings, subject.pad_id),
        shared_prompts(variant(form), length, manifest.injected, tensors, rows=2),
    )
    for row, words in enumerate((long[:room], short)):
        ids = [OPENING, *words, CLOSING]
        expected = reference.features(subject.reference, ids, capsule)
        assert difference(got[row], expected) < TOLERANCE


@pytest.fixture(scope="module")
def minilm(embedded: LoadedBackbone) -> Bert:
    return Bert.from_folder(embedded.info.path)


@pytest.mark.parametrize("form", VARIANTS)
def test_the_embedded_backbone_follows_the_equations(
    embedded: LoadedBackbone, minilm: Bert, form: str
) -> None:
    """In float32; the published variant is a capsule that ships."""
    ids = embedded.tokeniser.encode(["Who was the first American in space ?"], 64)[0].input_ids
    width, layers = embedded.info.hidden_size, tuple(range(embedded.info.num_layers))
    if form == "addition":
        (path,) = (file for file in zoo.artefacts() if file.name == "trec.safetensors")
        tensors = dict(parse(path.read_bytes()).tensors)
        p = tensors["capsule"].double().numpy()
        capsule = Capsule(form, p.shape[1], layers, {"capsule": p})
    else:
        capsule = drawn_capsule(form, 2, layers[::2], width)
        tensors = torch_tensors(capsule, torch.float32)
    prompts = shared_prompts(variant(form), capsule.length, capsule.layers, tensors, rows=1)
    with torch.no_grad():
        got = InjectedBackbone(embedded.backbone).features(token_batch([ids], 0), prompts)[0]
    expected = reference.features(minilm, ids, capsule)
    assert difference(got, expected) < 1e-4 * np.abs(expected).max()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_real_gemma_follows_the_equations() -> None:
    path = located()
    if path is None:
        pytest.skip(MISSING)
    loaded = load(str(path), device="cpu", dtype="float32")
    reference_model = gemma_reference(path)
    ids = loaded.tokeniser.encode(["Who was the first American in space?"], 64)[0].input_ids
    width, num_layers = loaded.info.hidden_size, loaded.info.num_layers
    assert (width, num_layers) == (640, 18)
    capsules = [
        None,
        drawn_capsule("addition", 1, reference.chosen("all", num_layers), width),
        drawn_capsule("extraction", 2, reference.chosen("odd", num_layers), width, seed=1),
        drawn_capsule("prepending", 1, reference.chosen("latter-half", num_layers), width, seed=2),
    ]
    texts = [ids, ids[:5], ids, ids[:7]]
    with torch.no_grad():
        got = InjectedBackbone(loaded.backbone).features(
            token_batch(texts, loaded.tokeniser.pad_id), row_prompts(capsules, dtype=torch.float32)
        )
    for row, (tokens, capsule) in enumerate(zip(texts, capsules, strict=True)):
        expected = reference.features(reference_model, tokens, capsule)
        assert difference(got[row], expected) < 1e-3 * np.abs(expected).max(), row
