"""Trainable parameters on real configurations, without their weights."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from transformers import (
    BertConfig,
    BertModel,
    LlamaConfig,
    LlamaModel,
    PreTrainedModel,
    T5Config,
    T5ForConditionalGeneration,
)

from capsules.backbones.base import LoadedBackbone
from capsules.backbones.registry import backbone_class
from capsules.baselines.learner import Counts, PeftLearner
from capsules.baselines.registry import method
from tests.support.claimed import INFO
from tests.support.texts import tokeniser


def bert_base() -> PreTrainedModel:
    return BertModel(BertConfig(), add_pooling_layer=False)


def t5_base() -> PreTrainedModel:
    return T5ForConditionalGeneration(
        T5Config(d_model=768, d_kv=64, d_ff=3072, num_layers=12, num_heads=12)
    )


def llama_1b() -> PreTrainedModel:
    config = LlamaConfig(
        vocab_size=128_256,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=64,
    )
    return LlamaModel(config)


BERT_HEAD, LLAMA_HEAD = 2 * 769, 2 * 2048


@pytest.mark.parametrize(
    ("build", "name", "expected"),
    [
        (bert_base, "prompt-tuning", Counts(20 * 768, BERT_HEAD)),
        (bert_base, "p-tuning-v2", Counts(20 * 12 * 2 * 768, BERT_HEAD)),
        (bert_base, "lora", Counts(294_912, BERT_HEAD)),
        (t5_base, "prompt-tuning", Counts(20 * 768, 0)),
        # Half of them lie idle, see `decoder_sizes`.
        (t5_base, "p-tuning-v2", Counts(2 * 20 * 12 * 2 * 768, 0)),
        (t5_base, "lora", Counts(884_736, 0)),
        (llama_1b, "prompt-tuning", Counts(20 * 2048, LLAMA_HEAD)),
        (llama_1b, "p-tuning-v2", Counts(20 * 16 * 2 * 512, LLAMA_HEAD)),
        (llama_1b, "lora", Counts(851_968, LLAMA_HEAD)),
    ],
)
def test_counts_are_those_that_the_methods_are_known_for(
    build: Callable[[], PreTrainedModel], name: str, expected: Counts
) -> None:
    with torch.device("meta"):
        model = build()
    backbone = backbone_class(model.config.model_type)(model)
    info = replace(INFO, family=backbone.family, hidden_size=model.config.hidden_size)
    loaded = LoadedBackbone(info, backbone, tokeniser(pad_id=0))
    learner = PeftLearner(method(name), loaded, ["w7", "w8"], seed=0)
    assert learner.counts == expected
