import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, RobertaConfig, RobertaModel
from transformers.utils import logging as transformers_logging

from capsules.backbones.base import BackboneInfo, LoadedBackbone
from capsules.backbones.encoder import Encoder
from capsules.backbones.load import load
from capsules.core import Geometry
from capsules.errors import BackboneError, BackboneFault, OptionError
from tests.support.backbones import SPECIAL, tiny_tokenizer


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


F = BackboneFault


@pytest.mark.parametrize(
    ("change", "code", "says"),
    [
        (configured(model_type="gpt2"), F.UNSUPPORTED_FAMILY, "'gpt2' are not supported"),
        (configured(model_type="nonesuch"), F.UNSUPPORTED_FAMILY, "Supported: bert, roberta"),
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
