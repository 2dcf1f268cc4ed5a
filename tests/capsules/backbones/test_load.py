import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, LlamaForCausalLM, RobertaConfig, RobertaModel
from transformers.utils import logging as transformers_logging

from capsules.backbones.base import Backbone, BackboneInfo, LoadedBackbone
from capsules.backbones.deberta import Deberta
from capsules.backbones.decoder import Decoder
from capsules.backbones.encoder import Encoder
from capsules.backbones.gemma import Gemma
from capsules.backbones.load import load, load_source
from capsules.backbones.source import BackboneSource
from capsules.backbones.t5 import T5
from capsules.core import Geometry
from capsules.errors import BackboneError, BackboneFault, OptionError
from tests.support.backbones import SPECIAL, tiny_family, tiny_tokenizer

F = BackboneFault


@pytest.fixture
def folder(tiny_folder: Path, tiny: LoadedBackbone, tmp_path: Path) -> Path:
    """A copy of the tiny backbone that a test may change."""
    return shutil.copytree(tiny_folder, tmp_path / "copy")


def test_the_identity_of_the_embedded_backbone(embedded: LoadedBackbone) -> None:
    info = embedded.info
    assert info.id == "sentence-transformers/all-MiniLM-L6-v2"
    assert (info.family, info.architecture) == ("encoder-only", "bert")
    assert info.geometry == Geometry(num_layers=6, hidden_size=384)
    assert (info.vocab_size, info.max_tokens) == (30_522, 512)
    # BERT of these sizes without its pooler.
    embeddings = (30_522 + 512 + 2) * 384 + 2 * 384
    layer = 4 * (384 * 384 + 384) + 2 * 384 * 1536 + 1536 + 384 + 4 * 384
    assert info.parameters == embeddings + 6 * layer
    assert (info.path / "config.json").is_file()


def test_a_folder_is_loaded(tiny: LoadedBackbone, tiny_folder: Path) -> None:
    assert tiny.info == BackboneInfo(
        id=tiny_folder.name,
        family="encoder-only",
        architecture="bert",
        hidden_size=32,
        num_layers=3,
        parameters=sum(
            tensor.numel() for tensor in load_file(tiny_folder / "model.safetensors").values()
        ),
        vocab_size=len(tiny_tokenizer()),
        max_tokens=64,
        fingerprint=tiny.info.fingerprint,
        path=tiny_folder,
    )
    assert tiny.tokeniser.pad_id == SPECIAL.index("[PAD]")


def test_the_backbone_is_frozen_and_evaluating(tiny: LoadedBackbone) -> None:
    model = tiny.backbone.model
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert not any(module.training for module in model.modules())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_weights_take_the_dtype_asked_for(
    tiny_folder: Path, tiny: LoadedBackbone, dtype: str
) -> None:
    backbone = load(str(tiny_folder), device="cpu", dtype=dtype).backbone
    assert backbone.dtype == getattr(torch, dtype)
    assert {parameter.dtype for parameter in backbone.model.parameters()} == {backbone.dtype}
    assert backbone.device == torch.device("cpu")


def test_options_are_checked_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(OptionError):
        load(str(tmp_path), device="abacus")
    with pytest.raises(OptionError):
        load(str(tmp_path), device="cpu", dtype="float8")


def test_roberta_numbers_its_positions_after_the_padding_id(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    config = RobertaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=40,
        pad_token_id=1,
    )
    RobertaModel(config, add_pooling_layer=False).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded = load(str(tmp_path), device="cpu", dtype="float32")
    assert isinstance(loaded.backbone, Encoder)
    assert (loaded.info.architecture, loaded.info.max_tokens) == ("roberta", 38)


ADAPTERS: dict[str, tuple[type[Backbone], str]] = {
    "deberta-v2": (Deberta, "encoder-only"),
    "t5": (T5, "encoder-decoder"),
    "mt5": (T5, "encoder-decoder"),
    "llama": (Decoder, "decoder-only"),
    "qwen2": (Decoder, "decoder-only"),
    "qwen3": (Decoder, "decoder-only"),
    "gemma3_text": (Gemma, "decoder-only"),
}


@pytest.mark.parametrize("model_type", ADAPTERS)
def test_every_family_is_loaded_from_a_folder(model_type: str, tmp_path: Path) -> None:
    loaded = tiny_family(tmp_path, model_type)
    adapter, family = ADAPTERS[model_type]
    assert type(loaded.backbone) is adapter
    assert (loaded.info.family, loaded.info.architecture) == (family, model_type)
    assert loaded.info.geometry == Geometry(num_layers=4, hidden_size=32)
    assert len(loaded.backbone.layers) == 4
    # T5's positions are relative; what it was made for is a habit.
    assert loaded.info.max_tokens == (512 if family == "encoder-decoder" else 64)
    assert loaded.info.vocab_size == len(tiny_tokenizer())
    stored = load_file(tmp_path / "model.safetensors")
    assert loaded.info.parameters == sum(tensor.numel() for tensor in stored.values())
    assert not any(value.requires_grad for value in loaded.backbone.model.parameters())
    assert not any(module.training for module in loaded.backbone.model.modules())


@pytest.mark.parametrize("model_type", ["t5", "mt5"])
def test_t5_is_not_run_in_float16(model_type: str, tmp_path: Path) -> None:
    tiny_family(tmp_path, model_type)
    source = BackboneSource("tiny", tmp_path)
    with pytest.raises(OptionError, match="choose bfloat16 or float32") as refused:
        load_source(source, torch.device("cpu"), torch.float16)
    assert refused.value.field == "dtype"
    half = load_source(source, torch.device("cpu"), torch.bfloat16).backbone
    assert {parameter.dtype for parameter in half.model.parameters()} == {torch.bfloat16}


def test_a_gemma_that_attends_in_both_directions_is_refused(tmp_path: Path) -> None:
    """As embedding models do, under the same type."""
    tiny_family(tmp_path, "gemma3_text")
    configured(use_bidirectional_attention=True)(tmp_path)
    with pytest.raises(BackboneError, match="attends in both directions") as refused:
        load(str(tmp_path), device="cpu", dtype="float32")
    assert refused.value.code == F.UNSUPPORTED_FAMILY
    assert repr(tmp_path.name) in refused.value.message
    assert "choose a causal one" in refused.value.message


def test_a_decoder_without_its_output_is_complete(tmp_path: Path) -> None:
    """The method reads hidden states, so base models and language models are the same to it."""
    loaded = tiny_family(tmp_path, "llama")
    config: Any = loaded.backbone.model.config
    language = LlamaForCausalLM(config)
    language.model.load_state_dict(loaded.backbone.model.state_dict())
    language.save_pretrained(tmp_path / "language")
    tiny_tokenizer().save_pretrained(tmp_path / "language")
    other = load(str(tmp_path / "language"), device="cpu", dtype="float32")
    assert other.info.parameters == loaded.info.parameters
    state = other.backbone.model.state_dict()
    for name, value in loaded.backbone.model.state_dict().items():
        assert torch.equal(value, state[name]), name


def test_an_encoder_decoder_without_its_decoder_is_refused(tmp_path: Path) -> None:
    tiny_family(tmp_path, "t5")
    path = tmp_path / "model.safetensors"
    kept = {name: value for name, value in load_file(path).items() if "decoder." not in name}
    save_file(kept, path, metadata={"format": "pt"})
    with pytest.raises(BackboneError, match=r"the first is 'decoder\.") as refused:
        load(str(tmp_path), device="cpu", dtype="float32")
    assert refused.value.code == F.CORRUPT


def configured(**keys: Any) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **keys}))

    return change


def write(name: str, content: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(content)


def lacking_a_layer(folder: Path) -> None:
    path = folder / "model.safetensors"
    kept = {name: tensor for name, tensor in load_file(path).items() if "layer.2." not in name}
    save_file(kept, path, metadata={"format": "pt"})


def cut_short(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize(
    ("change", "code", "says"),
    [
        (configured(model_type="gpt2"), F.UNSUPPORTED_FAMILY, "'gpt2' are not supported"),
        (
            configured(model_type="nonesuch"),
            F.UNSUPPORTED_FAMILY,
            "Supported: bert, deberta-v2, gemma3_text, llama, mt5, qwen2, qwen3, roberta, t5, "
            "xlm-roberta. To add one, write an adapter",
        ),
        (configured(model_type=None), F.CORRUPT, "configuration in"),
        (configured(hidden_size="wide"), F.CORRUPT, "hidden_size"),
        (configured(hidden_size=33), F.CORRUPT, "multiple of the number of attention heads"),
        (configured(hidden_size=48), F.CORRUPT, "cannot be loaded"),
        (
            configured(num_hidden_layers=5),
            F.CORRUPT,
            "lacks 32 weights, the first is 'encoder.layer.3",
        ),
        (write("config.json", "{"), F.CORRUPT, "cannot be read as JSON"),
        (write("config.json", "[]"), F.CORRUPT, "does not hold a JSON object"),
        (lacking_a_layer, F.CORRUPT, "point to a complete checkpoint"),
        (cut_short, F.CORRUPT, "not fully covered"),
        (write("model.safetensors", ""), F.CORRUPT, "cannot be loaded"),
        (lambda folder: (folder / "model.safetensors").unlink(), F.CORRUPT, "model.safetensors"),
        (write("tokenizer.json", "{"), F.CORRUPT, "tokenizer.json cannot be read"),
        (write("tokenizer.json", "{}"), F.CORRUPT, "The tokenizer in"),
        (write("tokenizer_config.json", "{"), F.CORRUPT, "The tokenizer in"),
        (write("tokenizer_config.json", "[]"), F.CORRUPT, "The tokenizer in"),
    ],
)
def test_a_folder_that_cannot_be_used_is_refused(
    change: Callable[[Path], object], code: BackboneFault, says: str, folder: Path
) -> None:
    change(folder)
    with pytest.raises(BackboneError) as refused:
        load(str(folder), device="cpu", dtype="float32")
    assert (refused.value.code, refused.value.field) == (code, "backbone")
    assert says in refused.value.message


def test_how_to_add_a_family_is_said(folder: Path) -> None:
    configured(model_type="gpt2")(folder)
    with pytest.raises(BackboneError, match=r"register it in registry\.py"):
        load(str(folder), device="cpu")


def test_a_slow_tokenizer_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AutoTokenizer, "from_pretrained", lambda *_, **__: object())
    with pytest.raises(BackboneError, match=r"put a tokenizer\.json") as refused:
        load(str(folder), device="cpu", dtype="float32")
    assert refused.value.code == F.NO_FAST_TOKENIZER


@pytest.mark.parametrize("bars", [True, False])
def test_transformers_talks_afterwards_as_it_did_before(folder: Path, bars: bool) -> None:
    level = transformers_logging.get_verbosity()
    before = transformers_logging.is_progress_bar_enabled()
    switch = {
        True: transformers_logging.enable_progress_bar,
        False: transformers_logging.disable_progress_bar,
    }
    switch[bars]()
    try:
        load(str(folder), device="cpu", dtype="float32")
        cut_short(folder)
        with pytest.raises(BackboneError):
            load(str(folder), device="cpu", dtype="float32")
        assert transformers_logging.is_progress_bar_enabled() == bars
        assert transformers_logging.get_verbosity() == level
    finally:
        switch[before]()
