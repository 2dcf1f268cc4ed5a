"""Tiny random transformers of each family beside their independent references.

Exact ones are float64 throughout: transformers takes norms and rotary angles in float32 whatever
the model is, so those modules are replaced. What is left as it ships agrees to float32's precision.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertModel,
    DebertaV2Config,
    DebertaV2Model,
    Gemma3TextConfig,
    Gemma3TextModel,
    LlamaConfig,
    LlamaModel,
    MT5Config,
    MT5ForConditionalGeneration,
    PreTrainedModel,
    Qwen2Config,
    Qwen2Model,
    Qwen3Config,
    Qwen3Model,
    RobertaConfig,
    RobertaModel,
    T5Config,
    T5ForConditionalGeneration,
)
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm, Gemma3RotaryEmbedding
from transformers.models.llama.modeling_llama import LlamaRMSNorm, LlamaRotaryEmbedding
from transformers.models.mt5.modeling_mt5 import MT5LayerNorm
from transformers.models.qwen2.modeling_qwen2 import Qwen2RMSNorm, Qwen2RotaryEmbedding
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm, Qwen3RotaryEmbedding
from transformers.models.t5.modeling_t5 import T5LayerNorm

from tests.reference.bert import Bert
from tests.reference.capsule import Transformer
from tests.reference.deberta import Deberta
from tests.reference.gemma import Gemma3
from tests.reference.llama import Llama
from tests.reference.maths import Array
from tests.reference.qwen import Qwen2, Qwen3
from tests.reference.t5 import T5

VOCABULARY = 50
# Token ids below this are special to one family or another.
FIRST_WORD = 5
# Shorter than the texts of the tests, so that windows leave something out.
WINDOW = 4

NORMS = (T5LayerNorm, MT5LayerNorm, LlamaRMSNorm, Qwen2RMSNorm, Qwen3RMSNorm)
ROTARIES = (LlamaRotaryEmbedding, Qwen2RotaryEmbedding, Qwen3RotaryEmbedding)


@dataclass(frozen=True, slots=True)
class Tiny:
    """A model and the reference on the same weights.

    Attributes:
        model: as a family's adapter takes it.
        reference: computes in float64, whatever the model's dtype is.
        pad_id: fills up its rows.
        width: D.
    """

    model: PreTrainedModel
    reference: Transformer
    pad_id: int
    width: int

    @property
    def num_layers(self) -> int:
        """N."""
        return self.reference.num_layers


class ExactNorm(nn.Module):
    """Root mean square norm in the dtype of its input."""

    def __init__(self, weight: nn.Parameter, epsilon: float, offset: float) -> None:
        super().__init__()
        self.weight = weight
        self.epsilon = epsilon
        self.offset = offset

    def forward(self, x: Tensor) -> Tensor:
        return (
            x
            * (x.square().mean(-1, keepdim=True) + self.epsilon).rsqrt()
            * (self.offset + self.weight)
        )


class ExactRotary(nn.Module):
    """Rotary angles in float64; Gemma's depend on how a layer attends."""

    def __init__(self, rope: dict[str, Any], width: int) -> None:
        super().__init__()
        self.rope = rope
        self.width = width

    def forward(
        self, x: Tensor, position_ids: Tensor, layer_type: str | None = None
    ) -> tuple[Tensor, Tensor]:
        rope = self.rope if layer_type is None else self.rope[layer_type]
        angles = position_ids[..., None] * exact_frequencies(rope, self.width)
        both = torch.cat((angles, angles), dim=-1)
        return both.cos().to(x.dtype), both.sin().to(x.dtype)


def exact_frequencies(rope: dict[str, Any], width: int) -> Tensor:
    """Of the kinds of rotary embedding used here: plain, and slowed down as Llama 3 is."""
    exponents = torch.arange(0, width, 2, dtype=torch.float64) / width
    plain: Tensor = rope["rope_theta"] ** -exponents
    if rope["rope_type"] == "default":
        return plain
    slow, fast = rope["low_freq_factor"], rope["high_freq_factor"]
    turns = rope["original_max_position_embeddings"] * plain / (2 * math.pi)
    smooth = ((turns - slow) / (fast - slow)).clamp(0, 1)
    scaled: Tensor = (1 - smooth) * plain / rope["factor"] + smooth * plain
    return scaled


def make_exact(module: nn.Module) -> None:
    """Turn a model into float64, its norms and rotary angles included."""
    module.double()
    for name, child in module.named_children():
        if isinstance(child, NORMS):
            setattr(module, name, ExactNorm(child.weight, child.variance_epsilon, 0.0))
        elif isinstance(child, Gemma3RMSNorm):
            setattr(module, name, ExactNorm(child.weight, child.eps, 1.0))
        elif isinstance(child, (*ROTARIES, Gemma3RotaryEmbedding)):
            config: Any = child.config
            width = getattr(config, "head_dim", config.hidden_size // config.num_attention_heads)
            setattr(module, name, ExactRotary(config.rope_parameters, width))
        else:
            make_exact(child)


def random(model: PreTrainedModel, seed: int) -> None:
    """Weights large enough that inputs matter to a model this small."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            value = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.4
            parameter.copy_(value + 0.5 if parameter.dim() == 1 else value)


def weights_of(model: nn.Module) -> dict[str, Array]:
    """The state dict as float64 arrays."""
    return {name: value.double().numpy() for name, value in model.state_dict().items()}


def build(
    create: Callable[[], PreTrainedModel],
    reference: Callable[[dict[str, Any], dict[str, Array]], Transformer],
    *,
    exact: bool,
    seed: int,
) -> Tiny:
    """A random model with its reference.

    Args:
        create: makes the model.
        reference: makes the reference of its configuration and weights.
        exact: whether it computes in float64 throughout, or in float32 as it ships.
        seed: of the weights.
    """
    # Construction draws initial weights, which are not kept.
    with torch.random.fork_rng():
        model = create()
    random(model, seed)
    if exact:
        make_exact(model)
    config = model.config.to_dict()
    config["num_hidden_layers"] = model.config.num_hidden_layers
    return Tiny(
        model=model.eval(),
        reference=reference(config, weights_of(model)),
        pad_id=config["pad_token_id"] or 0,
        width=model.config.hidden_size,
    )


def bert(*, exact: bool = True, seed: int = 0) -> Tiny:
    """BERT."""
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=24,
        max_position_embeddings=40,
    )
    return build(lambda: BertModel(config, add_pooling_layer=False), Bert, exact=exact, seed=seed)


def roberta(*, exact: bool = True, seed: int = 0) -> Tiny:
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
    return build(
        lambda: RobertaModel(config, add_pooling_layer=False),
        lambda facts, weights: Bert(facts, weights, first_position=2),
        exact=exact,
        seed=seed,
    )


# Heads of width 3, so that the scale of the scores, a square root that transformers takes in
# float32, is a whole number; few buckets, so that a short text meets the logarithmic ones too.
DEBERTA_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 12,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 40,
    "relative_attention": True,
    "position_buckets": 6,
    "max_relative_positions": 20,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": "p2c|c2p",
    "position_biased_input": False,
}


def deberta(*, exact: bool = True, seed: int = 0, **more: Any) -> Tiny:
    """DeBERTa v3."""
    config = DebertaV2Config(**DEBERTA_SIZES, **more)
    return build(lambda: DebertaV2Model(config), Deberta, exact=exact, seed=seed)


def deberta_v2(*, exact: bool = True, seed: int = 0) -> Tiny:
    """DeBERTa v2, whose larger sizes have a convolution beside the first layer."""
    return deberta(exact=exact, seed=seed, conv_kernel_size=3, conv_act="gelu")


# Few buckets and a short reach, so that a short text meets the logarithmic ones too.
T5_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": 16,
    "d_kv": 4,
    "d_ff": 24,
    "num_layers": 3,
    "num_decoder_layers": 2,
    "num_heads": 4,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 10,
    "decoder_start_token_id": 0,
}
UNTIED: dict[str, Any] = {"tie_word_embeddings": False}


def t5(*, exact: bool = True, seed: int = 0) -> Tiny:
    """T5 1.0."""
    config = T5Config(**T5_SIZES)
    return build(lambda: T5ForConditionalGeneration(config), T5, exact=exact, seed=seed)


def t5_gated(*, exact: bool = True, seed: int = 0) -> Tiny:
    """T5 1.1, whose layout Flan has too."""
    config = T5Config(feed_forward_proj="gated-gelu", **UNTIED, **T5_SIZES)
    return build(lambda: untied(T5ForConditionalGeneration(config)), T5, exact=exact, seed=seed)


def mt5(*, exact: bool = True, seed: int = 0) -> Tiny:
    """mT5, laid out as T5 1.1."""
    config = MT5Config(**UNTIED, **T5_SIZES)
    return build(lambda: untied(MT5ForConditionalGeneration(config)), T5, exact=exact, seed=seed)


def untied(model: PreTrainedModel) -> PreTrainedModel:
    """With an output matrix of its own, as those checkpoints have, which the class always ties."""
    head: Any = model.get_output_embeddings()
    head.weight = nn.Parameter(torch.empty_like(head.weight))
    return model


LLAMA_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
ROPE = {"rope_type": "default", "rope_theta": 50.0}


def llama(*, exact: bool = True, seed: int = 0) -> Tiny:
    """Llama with grouped keys."""
    config = LlamaConfig(num_hidden_layers=3, rope_parameters=ROPE, **LLAMA_SIZES)
    return build(lambda: LlamaModel(config), Llama, exact=exact, seed=seed)


def llama_scaled(*, exact: bool = True, seed: int = 0) -> Tiny:
    """Llama 3.1 and later, whose slow rotary angles are scaled: of the four here, one is not, one is in part."""
    scaled = {
        "rope_type": "llama3",
        "rope_theta": 50.0,
        "factor": 4.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    }
    config = LlamaConfig(num_hidden_layers=3, rope_parameters=scaled, head_dim=8, **LLAMA_SIZES)
    return build(lambda: LlamaModel(config), Llama, exact=exact, seed=seed)


def qwen2(*, exact: bool = True, seed: int = 0) -> Tiny:
    """Qwen 2 and 2.5."""
    config = Qwen2Config(num_hidden_layers=3, rope_parameters=ROPE, **LLAMA_SIZES)
    return build(lambda: Qwen2Model(config), Qwen2, exact=exact, seed=seed)


def qwen2_sliding(*, exact: bool = True, seed: int = 0) -> Tiny:
    """Qwen 2 with a window in all layers but the first."""
    config = Qwen2Config(
        num_hidden_layers=4,
        rope_parameters=ROPE,
        use_sliding_window=True,
        sliding_window=WINDOW,
        max_window_layers=1,
        **LLAMA_SIZES,
    )
    return build(lambda: Qwen2Model(config), Qwen2, exact=exact, seed=seed)


def qwen3(*, exact: bool = True, seed: int = 0) -> Tiny:
    """Qwen 3, whose heads together are wider than the model."""
    config = Qwen3Config(num_hidden_layers=3, rope_parameters=ROPE, head_dim=6, **LLAMA_SIZES)
    return build(lambda: Qwen3Model(config), Qwen3, exact=exact, seed=seed)


def gemma(*, exact: bool = True, seed: int = 0) -> Tiny:
    """Gemma 3 text, one of whose four layers has no window."""
    config = Gemma3TextConfig(
        num_hidden_layers=4,
        head_dim=6,
        query_pre_attn_scalar=7,
        sliding_window=WINDOW,
        layer_types=[*["sliding_attention"] * 2, "full_attention", "sliding_attention"],
        rope_parameters={
            "full_attention": {"rope_type": "default", "rope_theta": 300.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 20.0},
        },
        **LLAMA_SIZES,
    )
    return build(lambda: Gemma3TextModel(config), Gemma3, exact=exact, seed=seed)


MODELS: dict[str, Callable[..., Tiny]] = {
    "bert": bert,
    "roberta": roberta,
    "deberta-v3": deberta,
    "deberta-v2": deberta_v2,
    "t5": t5,
    "t5-v1.1": t5_gated,
    "llama": llama,
    "llama-3.1": llama_scaled,
    "qwen2": qwen2,
    "qwen2-sliding": qwen2_sliding,
    "qwen3": qwen3,
    "gemma3": gemma,
}
DECODERS = ("llama", "llama-3.1", "qwen2", "qwen2-sliding", "qwen3", "gemma3")
