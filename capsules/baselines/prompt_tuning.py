"""Prompt-Tuning: learned vectors in front of the embedded text."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from peft import PeftConfig, PromptTuningConfig, PromptTuningInit, TaskType
from torch import Tensor
from transformers import PreTrainedModel

from capsules.backbones.base import Backbone
from capsules.backbones.ends import PaddedEnds
from capsules.baselines.adapter import Adapter
from capsules.core import Reading, TokenBatch


@dataclass(frozen=True, slots=True)
class PromptTuning:
    """``H^0 = [p ; E]``, p [tokens, D], after Lester et al. (2021).

    The prompt starts as the embeddings of words drawn from the vocabulary, as its authors advise;
    PEFT's other start, normal vectors, lies far from where embeddings do. Models that learned
    their positions number the prompt as the first words of the text. Where tokens are averaged, the
    prompt counts, as a processed capsule does.

    Attributes:
        tokens: length of the prompt.
        learning_rate: to start from.
    """

    name: ClassVar[str] = "prompt-tuning"

    tokens: int = 20
    learning_rate: float = 0.1

    def slots(self, backbone: Backbone) -> int:
        """One position a token."""
        return self.tokens

    def part(self, backbone: Backbone) -> PreTrainedModel:
        """The model that reads the text, which of an encoder-decoder is the encoder."""
        if backbone.family == "encoder-decoder":
            return encoder_of(backbone)
        return backbone.model

    def config(self, backbone: Backbone) -> PeftConfig:
        """One prompt, in front of the text."""
        return PromptTuningConfig(
            task_type=TaskType.FEATURE_EXTRACTION,
            num_virtual_tokens=self.tokens,
            prompt_tuning_init=PromptTuningInit.SAMPLE_VOCAB,
        )

    def features(
        self, backbone: Backbone, adapter: Adapter, tokens: TokenBatch, reading: Reading | None
    ) -> Tensor:
        """As capsules are read, the prompt standing for the slots."""
        hidden = adapter(
            input_ids=tokens.input_ids, attention_mask=tokens.attention_mask
        ).last_hidden_state
        prompt = tokens.attention_mask.new_ones(len(tokens), self.tokens)
        mask = torch.cat((prompt, tokens.attention_mask), dim=1)
        return backbone.read(hidden, PaddedEnds(mask), reading)


def encoder_of(backbone: Backbone) -> PreTrainedModel:
    """The encoder of an encoder-decoder."""
    encoder: PreTrainedModel = backbone.model.get_encoder()
    return encoder
