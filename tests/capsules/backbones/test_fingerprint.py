import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel

from capsules.backbones import fingerprint as module
from capsules.backbones.base import LoadedBackbone
from capsules.backbones.load import load
from capsules.backbones.source import BackboneSource
from capsules.errors import BackboneError, BackboneFault
from tests.support.backbones import save_tiny_bert

EMBEDDED = "53235aea4fd09d43fe8f4671e60099ddd1e1000400f564fd149e539b0a73b05a"
WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_bert(tmp_path_factory.mktemp("original"))


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """A copy, under another name, that a test may change."""
    return shutil.copytree(original, tmp_path / "copy")


def fingerprint(folder: Path) -> str:
    """Of the backbone in a folder."""
    return module.fingerprint(BackboneSource("any name", folder))


def change_json(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def change_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})


def test_it_is_hex_sha256_and_the_same_each_time(original: Path) -> None:
    assert len(bytes.fromhex(fingerprint(original))) == 32
    assert fingerprint(original) == fingerprint(original)


def test_the_embedded_backbone_has_the_same_everywhere(embedded: LoadedBackbone) -> None:
    """Capsules in the field carry it: changing how it is computed would orphan them all."""
    assert embedded.info.fingerprint == EMBEDDED


def save_again(folder: Path, **options: Any) -> None:
    model = AutoModel.from_pretrained(folder, add_pooling_layer=False)
    (folder / WEIGHTS).unlink()
    model.save_pretrained(folder, **options)


def as_shards(folder: Path) -> None:
    save_again(folder, max_shard_size="20KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 2


def as_pickle(folder: Path) -> None:
    torch.save(load_file(folder / WEIGHTS), folder / "pytorch_model.bin")
    (folder / WEIGHTS).unlink()


def as_pickled_shards(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    shards = {name: f"pytorch_model-{n % 2}.bin" for n, name in enumerate(tensors)}
    for shard in set(shards.values()):
        torch.save({n: t for n, t in tensors.items() if shards[n] == shard}, folder / shard)
    index = {"metadata": {}, "weight_map": shards}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))


def with_strangers(folder: Path) -> None:
    strangers = {name: torch.zeros(3) for name in load_file(folder / WEIGHTS)}
    save_file(strangers, folder / "a-capsule.safetensors")
    save_file(strangers, folder / "z-capsule.safetensors")
    as_pickle(shutil.copytree(folder, folder.parent / "other"))
    shutil.copy(folder.parent / "other" / "pytorch_model.bin", folder)
    (folder / "optimizer.pt").write_bytes(b"state")
    (folder / "README.md").write_text("# Words")


def with_positions(folder: Path) -> None:
    change_weights(folder, lambda tensors: tensors.update(position_ids=torch.arange(64)))


def with_other_habits(folder: Path) -> None:
    habits = {
        "transformers_version": "4.0.0",
        "torch_dtype": "float16",
        "architectures": ["BertForMaskedLM"],
        "use_cache": False,
        "_name_or_path": "somewhere",
    }
    change_json(folder / "config.json", lambda config: config.update(habits))


def in_other_order(folder: Path) -> None:
    for name in ("config.json", "tokenizer.json"):
        value = json.loads((folder / name).read_text())
        backwards = {key: value[key] for key in reversed(value)}
        (folder / name).write_text(json.dumps(backwards, indent=7))


def with_padding_and_truncation(folder: Path) -> None:
    passing = {
        "padding": {
            "strategy": {"Fixed": 9},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "[PAD]",
        },
        "truncation": {
            "direction": "Right",
            "max_length": 9,
            "strategy": "LongestFirst",
            "stride": 0,
        },
    }
    change_json(folder / "tokenizer.json", lambda tokenizer: tokenizer.update(passing))


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: None,
        save_again,
        as_shards,
        as_pickle,
        as_pickled_shards,
        with_strangers,
        with_positions,
        with_other_habits,
        in_other_order,
        with_padding_and_truncation,
    ],
)
def test_what_leaves_the_answers_alone_leaves_it_alone(
    change: Callable[[Path], None], original: Path, folder: Path
) -> None:
    change(folder)
    assert fingerprint(folder) == fingerprint(original)


def one_weight(folder: Path) -> None:
    name = "encoder.layer.1.output.dense.weight"

    def change(tensors: dict[str, torch.Tensor]) -> None:
        tensors[name][3, 5] = torch.nextafter(tensors[name][3, 5], torch.tensor(9.0))

    change_weights(folder, change)


def two_weights_swapped(folder: Path) -> None:
    first, second = (f"encoder.layer.{n}.attention.self.query.weight" for n in (0, 1))
    change_weights(
        folder, lambda tensors: tensors.update({first: tensors[second], second: tensors[first]})
    )


def one_weight_fewer(folder: Path) -> None:
    change_weights(folder, lambda tensors: tensors.pop("encoder.layer.0.output.dense.bias"))


def another_shape(folder: Path) -> None:
    name = "embeddings.word_embeddings.weight"
    change_weights(
        folder, lambda tensors: tensors.update({name: tensors[name].reshape(-1, 16).clone()})
    )


def rounded_weights(folder: Path) -> None:
    change_weights(
        folder, lambda tensors: tensors.update({n: t.half() for n, t in tensors.items()})
    )


def one_word(folder: Path) -> None:
    def change(tokenizer: dict[str, Any]) -> None:
        vocabulary = tokenizer["model"]["vocab"]
        vocabulary["w1"], vocabulary["w2"] = vocabulary["w2"], vocabulary["w1"]

    change_json(folder / "tokenizer.json", change)


def another_normaliser(folder: Path) -> None:
    change_json(
        folder / "tokenizer.json",
        lambda tokenizer: tokenizer["normalizer"].update(lowercase=False),
    )


@pytest.mark.parametrize(
    "change",
    [
        one_weight,
        two_weights_swapped,
        one_weight_fewer,
        another_shape,
        rounded_weights,
        one_word,
        another_normaliser,
        lambda folder: change_json(
            folder / "config.json", lambda config: config.update(layer_norm_eps=1e-5)
        ),
        lambda folder: change_json(
            folder / "config.json", lambda config: config.update(num_attention_heads=2)
        ),
    ],
)
def test_what_changes_the_answers_changes_it(
    change: Callable[[Path], None], original: Path, folder: Path
) -> None:
    change(folder)
    assert fingerprint(folder) != fingerprint(original)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_it_does_not_depend_on_the_dtype_of_loading(original: Path, dtype: str) -> None:
    loaded = load(str(original), device="cpu", dtype=dtype)
    assert loaded.info.fingerprint == fingerprint(original)


def test_vocabulary_files_stand_in_for_a_missing_tokenizer_json(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").write_text("[UNK]\na\nb\n")
    before = fingerprint(folder)
    (folder / "vocab.txt").write_text("[UNK]\nb\na\n")
    assert fingerprint(folder) != before


def delete(*names: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return change


def write(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content)


def lone_index(content: bytes) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / WEIGHTS).unlink()
        (folder / f"{WEIGHTS}.index.json").write_bytes(content)

    return change


def lone_pickle(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    (folder / "pytorch_model.bin").write_bytes(b"no archive" * 9)


@pytest.mark.parametrize(
    ("change", "code", "says"),
    [
        (delete(WEIGHTS), BackboneFault.NOT_FOUND, "holds no weights"),
        (write(WEIGHTS, b"no weights"), BackboneFault.CORRUPT, "download them again"),
        (lone_pickle, BackboneFault.CORRUPT, "download them again"),
        (lone_index(b"{}"), BackboneFault.CORRUPT, "has no weight_map"),
        (lone_index(b'{"weight_map": {"a": "gone"}}'), BackboneFault.CORRUPT, "gone"),
        (delete("config.json"), BackboneFault.CORRUPT, "config.json cannot be read"),
        (write("config.json", b"[]"), BackboneFault.CORRUPT, "does not hold a JSON object"),
        (write("tokenizer.json", b"{"), BackboneFault.CORRUPT, "cannot be read as JSON"),
        (
            delete("tokenizer.json", "tokenizer_config.json"),
            BackboneFault.CORRUPT,
            "put tokenizer.json beside the weights",
        ),
    ],
)
def test_a_part_that_is_missing_or_damaged(
    change: Callable[[Path], object], code: BackboneFault, says: str, folder: Path
) -> None:
    change(folder)
    with pytest.raises(BackboneError) as refused:
        fingerprint(folder)
    assert refused.value.code == code
    assert says in refused.value.message


@pytest.fixture
def gguf(tmp_path: Path) -> BackboneSource:
    (tmp_path / "model.gguf").write_bytes(b"GGUF" + bytes(range(256)))
    return BackboneSource("model", tmp_path, gguf="model.gguf")


def test_one_file_that_holds_everything_is_known_by_its_bytes(gguf: BackboneSource) -> None:
    inner = hashlib.sha256(gguf.place.read_bytes()).digest()
    expected = hashlib.sha256(b"capsule backbone fingerprint 1\0" + inner).hexdigest()
    assert module.fingerprint(gguf) == expected


def test_the_name_and_the_neighbours_of_such_a_file_do_not_matter(
    gguf: BackboneSource, original: Path
) -> None:
    before = module.fingerprint(gguf)
    shutil.copytree(original, gguf.folder, dirs_exist_ok=True)
    gguf.place.rename(gguf.folder / "other.gguf")
    assert module.fingerprint(BackboneSource("other", gguf.folder, gguf="other.gguf")) == before
    (gguf.folder / "other.gguf").write_bytes(b"GGUF" + bytes(255) + b"\1")
    assert module.fingerprint(BackboneSource("other", gguf.folder, gguf="other.gguf")) != before


def test_such_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(BackboneError, match="cannot be read") as refused:
        module.fingerprint(BackboneSource("gone", tmp_path, gguf="gone.gguf"))
    assert refused.value.code == BackboneFault.CORRUPT
