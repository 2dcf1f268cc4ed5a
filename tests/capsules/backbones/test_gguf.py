"""A backbone that is one GGUF file."""

from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from capsules.backbones.base import LoadedBackbone
from capsules.backbones.decoder import Decoder
from capsules.backbones.load import load
from capsules.core import Geometry
from capsules.errors import BackboneError, BackboneFault
from capsules.injection import Prompts
from capsules.model import InjectedBackbone, pad
from tests.support.gguf_files import END, TOKENS, save_gguf, tiny_qwen


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return tiny_qwen()


@pytest.fixture(scope="module")
def file(model: PreTrainedModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_gguf(model, tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture(scope="module")
def loaded(file: Path) -> LoadedBackbone:
    return load(str(file), device="cpu", dtype="float32")


def test_it_is_known_by_what_is_in_the_file(
    loaded: LoadedBackbone, model: PreTrainedModel, file: Path
) -> None:
    info = loaded.info
    assert isinstance(loaded.backbone, Decoder)
    assert (info.id, info.family, info.architecture) == ("tiny", "decoder-only", "qwen2")
    assert info.geometry == Geometry(num_layers=2, hidden_size=32)
    assert (info.vocab_size, info.max_tokens) == (len(TOKENS), 64)
    assert info.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert info.path == file


def test_its_tokenizer_is_in_the_file(loaded: LoadedBackbone) -> None:
    (encoding,) = loaded.tokeniser.encode(["ab ba"], 64)
    assert [TOKENS[token] for token in encoding.input_ids] == ["ab", "\u0120", "b", "a"]
    assert loaded.tokeniser.pad_id == END


def test_it_answers_as_the_model_that_was_written(
    loaded: LoadedBackbone, model: PreTrainedModel
) -> None:
    encodings = loaded.tokeniser.encode(["ab ba", "a text of some letters"], 64)
    with torch.no_grad():
        got = InjectedBackbone(loaded.backbone).features(pad(encodings, END), Prompts())
        for row, encoding in enumerate(encodings):
            expected = model(torch.tensor([encoding.input_ids])).last_hidden_state[0, -1]
            torch.testing.assert_close(got[row], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_its_fingerprint_does_not_depend_on_the_dtype(
    loaded: LoadedBackbone, file: Path, dtype: str
) -> None:
    again = load(str(file), device="cpu", dtype=dtype)
    assert again.info.fingerprint == loaded.info.fingerprint
    assert again.backbone.dtype == getattr(torch, dtype)


def test_a_file_that_is_cut_short_is_refused(file: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(file.read_bytes()[:2000])
    with pytest.raises(BackboneError) as refused:
        load(str(cut), device="cpu", dtype="float32")
    assert refused.value.code == BackboneFault.CORRUPT
    assert str(cut) in refused.value.message
    assert "get it anew, or name another backbone with --backbone" in refused.value.message


def test_a_file_of_another_format_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    other.write_bytes(b"PK\x03\x04" + bytes(100))
    with pytest.raises(BackboneError) as refused:
        load(str(other), device="cpu", dtype="float32")
    assert refused.value.code == BackboneFault.CORRUPT
    assert str(other) in refused.value.message
    assert "so it is not a GGUF file. It may be damaged or cut off" in refused.value.message


def test_a_family_without_an_adapter_is_refused(model: PreTrainedModel, tmp_path: Path) -> None:
    path = save_gguf(model, tmp_path / "starcoder.gguf", architecture="starcoder2")
    with pytest.raises(BackboneError, match="'starcoder2' are not supported") as refused:
        load(str(path), device="cpu", dtype="float32")
    assert refused.value.code == BackboneFault.UNSUPPORTED_FAMILY
