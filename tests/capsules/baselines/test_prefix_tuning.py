"""Prefixes do what the method says on an encoder too, which has no use for a cache of its own."""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from tests.capsules.baselines.conftest import TEXTS, Case, Load
from tests.support.batches import token_batch

TOKENS, HEADS, LAYERS, WIDTH = 20, 4, 3, 16


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_every_token_of_an_encoder_sees_the_prefix_and_all_others(
    attention: str, load: Load
) -> None:
    case = Case("p-tuning-v2", *load("bert"))
    model = case.loaded.backbone.model
    learner = case.trained()
    prefix = learner.named()["prompt_encoder.embedding.weight"]
    kept = model.config._attn_implementation
    model.set_attn_implementation(attention)
    try:
        with torch.no_grad():
            found = learner.features(token_batch(TEXTS, case.pad_id))
            expected = torch.stack([by_hand(model, prefix, ids) for ids in TEXTS])
    finally:
        model.set_attn_implementation(kept)
    assert (found - expected).abs().max() < 1e-5


def by_hand(model: PreTrainedModel, prefix: Tensor, ids: list[int]) -> Tensor:
    """Mean of the last layer over one text, [D]; positions go on from the prefix."""
    parts: Any = model
    # PEFT keeps the key and the value of a layer side by side.
    pairs = prefix.view(TOKENS, LAYERS, 2, WIDTH)
    hidden = parts.embeddings(
        input_ids=torch.tensor([ids]), position_ids=torch.arange(TOKENS, TOKENS + len(ids))[None]
    )
    for number, layer in enumerate(parts.encoder.layer):
        maps = layer.attention.self
        query = heads(maps.query(hidden)[0])
        key = heads(torch.cat((pairs[:, number, 0], maps.key(hidden)[0])))
        value = heads(torch.cat((pairs[:, number, 1], maps.value(hidden)[0])))
        weights = (query @ key.mT / (WIDTH // HEADS) ** 0.5).softmax(dim=-1)
        mixed = (weights @ value).transpose(0, 1).reshape(1, len(ids), WIDTH)
        attended = layer.attention.output(mixed, hidden)
        hidden = layer.output(layer.intermediate(attended), attended)
    mean: Tensor = hidden[0].mean(dim=0)
    return mean


def heads(rows: Tensor) -> Tensor:
    """[n, D] to [heads, n, width]."""
    return rows.view(len(rows), HEADS, -1).transpose(0, 1)
