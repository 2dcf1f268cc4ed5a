"""The adapters on transformers' own models, whose modules are left as they are, in float32."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from capsules.backbones.registry import backbone_class
from capsules.backbones.source import BackboneSource
from capsules.backbones.t5 import T5 as Adapter
from capsules.core import Encoding, TokenBatch
from capsules.injection import Prompts
from capsules.model import InjectedBackbone, pad
from tests.reference import capsule as reference
from tests.reference.t5 import T5
from tests.support.batches import drawn_capsule, row_prompts, token_batch
from tests.support.families import Subject, subject_of
from tests.support.models import MODELS, mt5, t5_gated

TEXTS = ([7, 12, 9, 31, 8, 22, 6], [5, 9, 44], [17, 17])
MODELS_AS_SHIPPED = MODELS | {"mt5": mt5}

padded = pytest.mark.parametrize("left", [False, True], ids=["right-padded", "left-padded"])


@pytest.fixture(scope="module", params=MODELS_AS_SHIPPED)
def shipped(request: pytest.FixtureRequest) -> Subject:
    return subject_of(MODELS_AS_SHIPPED[request.param](exact=False))


def features(subject: Subject, tokens: TokenBatch, prompts: Prompts) -> Tensor:
    with torch.no_grad():
        return InjectedBackbone(subject.backbone).features(tokens, prompts)


@padded
def test_without_capsules_features_are_read_from_transformers_own_output(
    shipped: Subject, left: bool
) -> None:
    model = shipped.backbone.model
    got = features(shipped, token_batch(TEXTS, shipped.pad_id, left=left), Prompts())
    for row, ids in enumerate(TEXTS):
        given = {"input_ids": torch.tensor([ids])}
        if isinstance(shipped.backbone, Adapter):
            given["decoder_input_ids"] = torch.tensor([[model.config.decoder_start_token_id]])
        with torch.no_grad():
            output = model(**given)
        if isinstance(shipped.backbone, Adapter):
            # Label words are scored by their rows of the output matrix.
            words = [5, 17, 40]
            scores = got[row] @ shipped.backbone.word_rows(words).T
            torch.testing.assert_close(scores, output.logits[0, 0, words], rtol=0, atol=2e-5)
            continue
        states = output.last_hidden_state[0]
        read = states[-1] if shipped.backbone.family == "decoder-only" else states.mean(dim=0)
        torch.testing.assert_close(got[row], read, rtol=0, atol=2e-5)


@padded
def test_with_capsules_features_are_those_of_the_reference(shipped: Subject, left: bool) -> None:
    every = tuple(range(shipped.num_layers))
    capsules = [
        drawn_capsule("addition", length, every, shipped.width, length) for length in (1, 3, 2)
    ]
    got = features(
        shipped,
        token_batch(TEXTS, shipped.pad_id, left=left),
        row_prompts(capsules, dtype=torch.float32),
    )
    for row, (ids, capsule) in enumerate(zip(TEXTS, capsules, strict=True)):
        expected = reference.features(shipped.reference, ids, capsule)
        assert got.dtype == torch.float32
        assert np.abs(got[row].numpy() - expected).max() < 1e-4


def test_weights_are_frozen(shipped: Subject) -> None:
    model = shipped.backbone.model
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("tied", [False, None], ids=["as on the hub", "as saved again"])
def test_an_output_matrix_of_its_own_is_kept(tmp_path: Path, tied: bool | None) -> None:
    """Transformers ties T5's matrices whatever the configuration says, unless both are there."""
    tiny = t5_gated(exact=False)
    tiny.model.save_pretrained(tmp_path)
    if tied is not None:
        path = tmp_path / "config.json"
        config = json.loads(path.read_text())
        del config["scale_decoder_outputs"]
        path.write_text(json.dumps(config | {"tie_word_embeddings": tied}))
    model = Adapter.load_model(BackboneSource("tiny", tmp_path), torch.float32)
    subject = Subject(
        backbone_class("t5")(model), tiny.reference, tiny.pad_id, tiny.width, tiny.num_layers
    )
    assert isinstance(subject.backbone, Adapter)
    assert isinstance(tiny.reference, T5)
    got = features(subject, token_batch(TEXTS, tiny.pad_id), Prompts())
    scores = got @ subject.backbone.word_rows(range(50)).T
    for row, ids in enumerate(TEXTS):
        last = reference.states(tiny.reference, ids, None)[-1]
        assert np.abs(scores[row].numpy() - tiny.reference.logits(last, [])).max() < 1e-4


def test_rows_are_padded_on_the_right() -> None:
    rows = [(3, 4, 5), (6,), (7, 8)]
    tokens = pad([Encoding(input_ids=ids, truncated=False) for ids in rows], pad_id=9)
    assert len(tokens) == 3
    assert tokens.input_ids.dtype == torch.int64
    assert tokens.input_ids.tolist() == [[3, 4, 5], [6, 9, 9], [7, 8, 9]]
    assert tokens.attention_mask.dtype == torch.bool
    assert tokens.attention_mask.tolist() == [
        [True, True, True],
        [True, False, False],
        [True, True, False],
    ]
