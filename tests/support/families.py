"""A tiny random backbone of each family beside its independent reference, both in float64."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertModel,
    PreTrainedModel,
    RobertaConfig,
    RobertaModel,
)
from transformers.models.llama.modeling_llama import LlamaRMSNorm, LlamaRotaryEmbedding
from transformers.models.t5.modeling_t5 import T5LayerNorm

from capsules.backbones.base import Backbone
from capsules.backbones.encoder import Encoder
from tests.reference import bert as bert_reference
from tests.reference.capsule import Transformer
from tests.reference.llama import Llama as LlamaReference
from tests.reference.maths import Array
from tests.reference.t5 import T5 as T5Reference
from tests.support.llama import tiny_llama
from tests.support.t5 import tiny_t5

VOCABULARY = 50
# Token ids below this are special to one family or another.
FIRST_WORD = 5


@dataclass(frozen=True, slots=True)
class Subject:
    """A backbone, the reference on the same weights, and the id that fills up its rows."""

    backbone: Backbone
    reference: Transformer
    pad_id: int


class ExactRotary(nn.Module):
    """Rotary angles in float64, where transformers takes them in float32 whatever the model is."""

    def __init__(self, base: float, width: int) -> None:
        super().__init__()
        exponents = torch.arange(0, width, 2, dtype=torch.float64) / width
        self.frequencies = base**-exponents

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        angles = position_ids[..., None] * self.frequencies
        both = torch.cat((angles, angles), dim=-1)
        return both.cos().to(x.dtype), both.sin().to(x.dtype)


def widen(module: nn.Module) -> None:
    """To float64, norms and rotary angles included, which transformers always takes in float32."""
    module.double()
    for name, child in module.named_children():
        if isinstance(child, T5LayerNorm | LlamaRMSNorm):
            exact = nn.RMSNorm(len(child.weight), eps=child.variance_epsilon, dtype=torch.float64)
            exact.weight = child.weight
            setattr(module, name, exact)
        elif isinstance(child, LlamaRotaryEmbedding):
            config: Any = child.config
            base = config.rope_parameters["rope_theta"]
            setattr(module, name, ExactRotary(base, config.head_dim))
        else:
            widen(child)


def weights_of(module: nn.Module) -> dict[str, Array]:
    """The state dict as arrays."""
    return {name: value.numpy() for name, value in module.state_dict().items()}


def bert(seed: int = 0) -> Subject:
    """BERT."""
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=24,
        max_position_embeddings=40,
    )
    model = random(lambda: BertModel(config, add_pooling_layer=False), seed)
    reference = bert_reference.Bert(config.to_dict(), weights_of(model))
    return Subject(Encoder(model), reference, pad_id=0)


def roberta(seed: int = 0) -> Subject:
    """RoBERTa, whose positions count from the padding id plus one."""
    config = RobertaConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=24,
        max_position_embeddings=42,
        type_vocab_size=1,
        pad_token_id=1,
    )
    model = random(lambda: RobertaModel(config, add_pooling_layer=False), seed)
    reference = bert_reference.Bert(config.to_dict(), weights_of(model), first_position=2)
    return Subject(Encoder(model), reference, pad_id=1)


def t5_reference(model: PreTrainedModel) -> T5Reference:
    """The reference of a T5 model, on its weights as they are now."""
    config = model.config
    return T5Reference(
        weights_of(model),
        num_layers=config.num_layers,
        decoder_layers=config.num_decoder_layers,
        heads=config.num_heads,
        epsilon=config.layer_norm_epsilon,
        buckets=config.relative_attention_num_buckets,
        far=config.relative_attention_max_distance,
        start=config.decoder_start_token_id,
    )


def t5(seed: int = 0) -> Subject:
    """T5 1.0."""
    backbone = tiny_t5(seed)
    widen(backbone.model)
    return Subject(backbone, t5_reference(backbone.model), pad_id=0)


def llama(seed: int = 0) -> Subject:
    """Llama 3."""
    backbone = tiny_llama(seed)
    widen(backbone.model)
    config = backbone.model.config
    reference = LlamaReference(
        weights_of(backbone.model),
        num_layers=config.num_hidden_layers,
        heads=config.num_attention_heads,
        key_heads=config.num_key_value_heads,
        epsilon=config.rms_norm_eps,
        base=config.rope_parameters["rope_theta"],
    )
    return Subject(backbone, reference, pad_id=0)


def random(build: Callable[[], PreTrainedModel], seed: int) -> PreTrainedModel:
    """A float64 model with weights large enough that inputs matter to it."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = build()
        widen(model)
        for parameter in model.parameters():
            nn.init.normal_(parameter, mean=0.5 if parameter.dim() == 1 else 0.0, std=0.4)
    return model


FAMILIES: dict[str, Callable[[], Subject]] = {
    "bert": bert,
    "roberta": roberta,
    "t5": t5,
    "llama": llama,
}
