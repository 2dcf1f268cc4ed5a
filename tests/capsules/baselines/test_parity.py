"""Scores equal those of PEFT's own models, put together here from what PEFT documents."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from peft import (
    LoraConfig,
    PeftConfig,
    PrefixTuningConfig,
    PromptTuningConfig,
    TaskType,
    get_peft_model,
)
from torch import Tensor

from capsules.backbones.base import Backbone
from tests.capsules.baselines.conftest import LABELS, TEXTS, Case
from tests.reference.words import label_probabilities

pytestmark = [
    pytest.mark.filterwarnings("ignore:`past_key_values` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
]


def test_scores_are_those_of_peft_however_rows_are_padded(every_case: Case) -> None:
    case = every_case
    learner = case.trained()
    peft = peft_model(case.name, case.loaded.backbone, learner.snapshot())
    expected = torch.tensor(
        np.stack([probabilities(peft, case.loaded.backbone, ids, learner) for ids in TEXTS])
    )
    with torch.no_grad():
        for left in (False, True):
            found = learner(case.tokens(left=left)).softmax(dim=1)
            assert (found - expected).abs().max() < 1e-5


def peft_model(name: str, backbone: Backbone, tensors: Mapping[str, Tensor]) -> Any:
    """PEFT over a copy of the model, with these tensors."""
    words = backbone.family == "encoder-decoder"
    task = TaskType.SEQ_2_SEQ_LM if words else TaskType.FEATURE_EXTRACTION
    config: PeftConfig
    if name == "lora":
        config = LoraConfig(task_type=task, r=8, lora_alpha=16)
    elif name == "prompt-tuning":
        config = PromptTuningConfig(
            task_type=task, num_virtual_tokens=20, num_transformer_submodules=1
        )
    elif words:
        config = PrefixTuningConfig(
            task_type=task, num_virtual_tokens=20, num_layers=4, num_attention_heads=4, token_dim=16
        )
    else:
        config = PrefixTuningConfig(task_type=task, num_virtual_tokens=20)
    peft = get_peft_model(copy.deepcopy(backbone.model), config).eval()
    own = {name: value for name, value in peft.named_parameters() if value.requires_grad}
    assert len(own) == sum(not name.startswith("head.") for name in tensors)
    with torch.no_grad():
        for name, value in own.items():
            value.copy_(tensors[name.replace(".default", "")])
    return peft


@torch.no_grad()
def probabilities(peft: Any, backbone: Backbone, ids: Sequence[int], learner: Any) -> Any:
    """[L] for one text alone, so that nothing is padded."""
    text = torch.tensor([ids])
    mask = torch.ones_like(text)
    if backbone.family == "encoder-decoder":
        words = [[int(token[1:]) for token in label.split()] for label in LABELS]

        def logits(prefix: Sequence[int]) -> Any:
            said = torch.tensor([[0, *prefix]])
            found = peft(input_ids=text, attention_mask=mask, decoder_input_ids=said)
            return found.logits[0, -1].numpy()

        return label_probabilities(logits, words, end=1)
    hidden = peft(input_ids=text, attention_mask=mask).last_hidden_state[0]
    head = learner.named()
    # A prompt is in the sequence and a prefix is not.
    assert len(hidden) == len(ids) + (20 if learner.method.name == "prompt-tuning" else 0)
    if backbone.family == "encoder-only":
        scores = head["head.weight"] @ hidden.mean(dim=0) + head["head.bias"]
    else:
        scores = head["head.weight"] @ hidden[-1]
    return scores.softmax(dim=0).numpy()
