"""The families of the seam against transformers' own models, whose modules are left as they are."""

import numpy as np
import pytest
import torch
from torch import Tensor

from capsules.backbones.base import Backbone
from capsules.core import Encoding
from capsules.injection import Prompts
from capsules.model import InjectedBackbone, pad
from tests.reference import capsule as reference
from tests.reference.llama import Llama as LlamaReference
from tests.support.batches import addition_prompts, token_batch
from tests.support.families import Subject, bert, roberta, t5_reference, weights_of
from tests.support.llama import tiny_llama
from tests.support.t5 import tiny_t5

TEXTS = ([7, 12, 9, 31, 8, 22, 6], [5, 9, 44], [17, 17])


def features(backbone: Backbone, pad_id: int, prompts: Prompts, left: bool = False) -> Tensor:
    with torch.no_grad():
        return InjectedBackbone(backbone).features(token_batch(TEXTS, pad_id, left=left), prompts)


def capsules(dtype: torch.dtype) -> list[Tensor | None]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(3, length, 16, generator=generator).to(dtype) for length in (1, 3, 2)]


@pytest.mark.parametrize("build", [bert, roberta])
def test_a_bare_encoder_is_the_mean_of_transformers_own_output(build) -> None:
    subject: Subject = build()
    tokens = token_batch(TEXTS, subject.pad_id)
    with torch.no_grad():
        output = subject.backbone.model(
            input_ids=tokens.input_ids, attention_mask=tokens.attention_mask.long()
        ).last_hidden_state
    got = features(subject.backbone, subject.pad_id, Prompts())
    for row, ids in enumerate(TEXTS):
        expected = output[row, : len(ids)].mean(dim=0)
        torch.testing.assert_close(got[row], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("left", [False, True], ids=["right-padded", "left-padded"])
def test_a_bare_llama_is_transformers_own_last_state(left: bool) -> None:
    backbone = tiny_llama()
    got = features(backbone, 0, Prompts(), left=left)
    for row, ids in enumerate(TEXTS):
        with torch.no_grad():
            output = backbone.model(input_ids=torch.tensor([ids]), use_cache=False)
        torch.testing.assert_close(got[row], output.last_hidden_state[0, -1], rtol=0, atol=1e-5)


def test_a_bare_t5_scores_label_words_as_transformers_own_first_step_does() -> None:
    backbone = tiny_t5()
    words = [5, 17, 40]
    rows = backbone.model.lm_head.weight[words]
    got = features(backbone, 0, Prompts()) @ rows.T
    start = torch.tensor([[backbone.model.config.decoder_start_token_id]])
    for row, ids in enumerate(TEXTS):
        with torch.no_grad():
            output = backbone.model(
                input_ids=torch.tensor([ids]), decoder_input_ids=start, use_cache=False
            )
        torch.testing.assert_close(got[row], output.logits[0, 0, words], rtol=0, atol=1e-5)


@pytest.mark.parametrize("left", [False, True], ids=["right-padded", "left-padded"])
def test_llama_as_transformers_ships_it_agrees_with_the_reference(left: bool) -> None:
    backbone = tiny_llama()
    config = backbone.model.config
    model = LlamaReference(
        weights_of(backbone.model),
        num_layers=config.num_hidden_layers,
        heads=config.num_attention_heads,
        key_heads=config.num_key_value_heads,
        epsilon=config.rms_norm_eps,
        base=config.rope_parameters["rope_theta"],
    )
    learned = capsules(torch.float32)
    got = features(backbone, 0, addition_prompts(learned), left=left)
    check(got, model, learned)


def test_t5_as_transformers_ships_it_agrees_with_the_reference() -> None:
    backbone = tiny_t5()
    model = t5_reference(backbone.model)
    learned = capsules(torch.float32)
    check(features(backbone, 0, addition_prompts(learned)), model, learned)


def check(got: Tensor, model: reference.Transformer, learned: list[Tensor | None]) -> None:
    for row, (ids, p) in enumerate(zip(TEXTS, learned, strict=True)):
        assert p is not None
        expected = reference.features(model, ids, p.double().numpy())
        assert np.abs(got[row].numpy() - expected).max() < 1e-4


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
