"""LoRA: low-rank changes of the attention's query and value maps."""

from dataclasses import dataclass
from typing import ClassVar

from peft import LoraConfig, PeftConfig, TaskType
from torch import Tensor
from transformers import PreTrainedModel

from capsules.backbones.base import Backbone
from capsules.baselines.adapter import Adapter
from capsules.core import Reading, TokenBatch
from capsules.injection import Prompts
from capsules.model import InjectedBackbone


@dataclass(frozen=True, slots=True)
class Lora:
    """``W' = W + (alpha / rank) B A`` for the query and value maps, after Hu et al. (2022).

    A [rank, in] starts at random and B [out, rank] at zero, so that training starts from the bare
    backbone. PEFT knows each family's names of these maps; of an encoder-decoder they are those of
    the encoder, of the decoder, and of the decoder's attention to the encoder.

    Attributes:
        rank: of the change.
        alpha: its scale, divided by the rank.
        learning_rate: to start from.
    """

    name: ClassVar[str] = "lora"

    rank: int = 8
    alpha: int = 16
    learning_rate: float = 0.005

    def slots(self, backbone: Backbone) -> int:
        """None: the sequence stays as it is."""
        return 0

    def part(self, backbone: Backbone) -> PreTrainedModel:
        """All of it."""
        return backbone.model

    def config(self, backbone: Backbone) -> PeftConfig:
        """No dropout, as nothing else in training has any."""
        return LoraConfig(
            task_type=TaskType.FEATURE_EXTRACTION,
            r=self.rank,
            lora_alpha=self.alpha,
            lora_dropout=0.0,
        )

    def features(
        self, backbone: Backbone, adapter: Adapter, tokens: TokenBatch, reading: Reading | None
    ) -> Tensor:
        """As the bare backbone is read, the changed maps being in place."""
        with adapter.laid():
            return InjectedBackbone(backbone).features(tokens, Prompts(), reading)
