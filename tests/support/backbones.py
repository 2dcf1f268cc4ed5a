"""Tiny random backbones, saved to a folder and loaded as any other."""

from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSeq2SeqLM,
    BertConfig,
    BertModel,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
)

from capsules.backbones.base import LoadedBackbone
from capsules.backbones.load import load

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
WORDS = tuple(f"w{number}" for number in range(200))


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """WordPiece over single letters, `WORDS` and a little punctuation; every word is one token."""
    pieces = [*SPECIAL, *LETTERS, *(f"##{letter}" for letter in LETTERS), *".,:?!", *WORDS]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    backend = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100))
    backend.normalizer = BertNormalizer(lowercase=True)
    backend.pre_tokenizer = BertPreTokenizer()
    backend.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[(t, vocabulary[t]) for t in ("[CLS]", "[SEP]")]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
    )


def save_tiny_bert(
    folder: Path, *, hidden_size: int = 32, layers: int = 3, max_tokens: int = 64, seed: int = 0
) -> Path:
    """Write a random BERT of a few thousand weights with its tokenizer."""
    tokenizer = tiny_tokenizer()
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=2 * hidden_size,
        max_position_embeddings=max_tokens,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = BertModel(config, add_pooling_layer=False)
        # The usual deviation of 0.02 leaves a model this small all but blind to its input.
        for parameter in model.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def tiny_configuration(model_type: str, vocabulary: int) -> PreTrainedConfig:
    """The smallest configuration of a family in which nothing is left out.

    Args:
        model_type: as transformers names it.
        vocabulary: how many tokens there are.
    """
    if model_type in ("t5", "mt5"):
        return AutoConfig.for_model(
            model_type,
            vocab_size=vocabulary,
            d_model=32,
            d_kv=8,
            d_ff=48,
            num_layers=4,
            num_decoder_layers=2,
            num_heads=4,
            decoder_start_token_id=0,
            pad_token_id=0,
            eos_token_id=3,
        )
    if model_type == "deberta-v2":
        return AutoConfig.for_model(
            model_type,
            vocab_size=vocabulary,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=4,
            num_attention_heads=4,
            max_position_embeddings=64,
            relative_attention=True,
            position_buckets=8,
            norm_rel_ebd="layer_norm",
            share_att_key=True,
            pos_att_type=["p2c", "c2p"],
            position_biased_input=False,
            type_vocab_size=0,
            conv_kernel_size=3,
        )
    return AutoConfig.for_model(
        model_type,
        vocab_size=vocabulary,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=64,
        pad_token_id=0,
    )


def tiny_family(folder: Path, model_type: str, *, seed: int = 0) -> LoadedBackbone:
    """A random backbone of a family, saved with its tokenizer and loaded in float32."""
    tokenizer = tiny_tokenizer()
    config = tiny_configuration(model_type, len(tokenizer))
    build = AutoModelForSeq2SeqLM if model_type in ("t5", "mt5") else AutoModel
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = build.from_config(config)
        for parameter in model.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return load(str(folder), device="cpu", dtype="float32")


def tiny_bert(folder: Path, **sizes: int) -> LoadedBackbone:
    """A random BERT, loaded on the CPU in float32; see :func:`save_tiny_bert`."""
    return load(str(save_tiny_bert(folder, **sizes)), device="cpu", dtype="float32")


def words(count: int, first: int = 0) -> str:
    """A text of `count` tokens, special tokens not counted."""
    return " ".join(WORDS[(first + number) % len(WORDS)] for number in range(count))
