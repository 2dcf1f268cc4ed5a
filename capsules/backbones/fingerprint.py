"""Identifies a backbone by what decides its answers: weights, tokenizer, configuration.

The digest is taken from the files' contents, not their bytes, so that it does not depend on
sharding, file names, key order, device or the dtype in which the weights are later loaded.
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from capsules.backbones.source import BackboneSource
from capsules.errors import BackboneError, BackboneFault

# Configuration keys that name versions, file formats or run-time habits, not the function computed.
VOLATILE_KEYS = frozenset(
    {"transformers_version", "torch_dtype", "dtype", "architectures", "use_cache"}
    | {"gradient_checkpointing", "output_attentions", "output_hidden_states", "return_dict"}
)
VOCABULARY_FILES = (
    *("vocab.txt", "vocab.json", "merges.txt", "spiece.model", "sentencepiece.bpe.model"),
    *("tokenizer.model", "added_tokens.json", "tokenizer_config.json"),
)


def fingerprint(source: BackboneSource) -> str:
    """Hex sha256 of a backbone.

    Args:
        source: where `config.json`, the weights and the tokenizer's files are, or the one file
            that holds them all, which is then taken as it is.

    Raises:
        BackboneError: a part is missing or cannot be read.
    """
    digest = hashlib.sha256(b"capsule backbone fingerprint 1\0")
    if source.gguf is not None:
        digest.update(file_digest(source.place))
        return digest.hexdigest()
    folder = source.folder
    digest.update(config_digest(folder))
    digest.update(tokenizer_digest(folder))
    digest.update(weights_digest(folder))
    return digest.hexdigest()


def file_digest(path: Path) -> bytes:
    """sha256 of a file's bytes.

    Raises:
        BackboneError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError as error:
        raise BackboneError(
            f"{path} cannot be read ({error}).", code=BackboneFault.CORRUPT
        ) from error


def canonical(value: Any) -> bytes:
    """JSON with sorted keys and no white space."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file of the backbone.

    Raises:
        BackboneError: it cannot be read or is not an object.
    """
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise BackboneError(
            f"{path} cannot be read as JSON: {error}", code=BackboneFault.CORRUPT
        ) from error
    if not isinstance(value, dict):
        raise BackboneError(f"{path} does not hold a JSON object.", code=BackboneFault.CORRUPT)
    return value


def config_digest(folder: Path) -> bytes:
    """sha256 of the configuration, less keys that do not change the function computed."""
    config = read_json(folder / "config.json")
    lasting = {
        key: value
        for key, value in config.items()
        if key not in VOLATILE_KEYS and not key.startswith("_")
    }
    return hashlib.sha256(canonical(lasting)).digest()


def tokenizer_digest(folder: Path) -> bytes:
    """sha256 of `tokenizer.json` less padding and truncation, or of the vocabulary files."""
    path = folder / "tokenizer.json"
    if path.exists():
        tokenizer = read_json(path)
        for passing in ("padding", "truncation"):
            tokenizer.pop(passing, None)
        return hashlib.sha256(canonical(tokenizer)).digest()
    digest = hashlib.sha256()
    found = [folder / name for name in VOCABULARY_FILES if (folder / name).exists()]
    for file in found:
        digest.update(file.name.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    if not found:
        raise BackboneError(
            f"{folder} holds no tokenizer; put tokenizer.json beside the weights.",
            code=BackboneFault.CORRUPT,
        )
    return digest.digest()


def weights_digest(folder: Path) -> bytes:
    """sha256 over all floating-point tensors in the order of their names."""
    digests = {
        name: hashlib.sha256(memoryview(raw_bytes(tensor))).digest()
        + f"{tensor.dtype}{tuple(tensor.shape)}".encode()
        for name, tensor in stored_tensors(folder)
        if tensor.is_floating_point()
    }
    total = hashlib.sha256()
    for name in sorted(digests):
        total.update(name.encode() + b"\0" + digests[name])
    return total.digest()


def raw_bytes(tensor: torch.Tensor) -> Any:
    """The tensor's memory as an array of bytes, without a copy where it is contiguous."""
    return tensor.contiguous().flatten().view(torch.uint8).numpy()


def stored_tensors(folder: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor of the checkpoint, one in memory at a time where the format allows it.

    Raises:
        BackboneError: there are no weights, or a file of them cannot be read.
    """
    for path in weight_files(folder):
        try:
            if path.suffix == ".safetensors":
                with safe_open(path, framework="pt") as file:
                    for name in file.keys():  # noqa: SIM118 - not a mapping
                        yield name, file.get_tensor(name)
            else:
                state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
                yield from state.items()
        except (OSError, RuntimeError, UnpicklingError, SafetensorError) as error:
            raise BackboneError(
                f"The weights {path} cannot be read ({error}); download them again.",
                code=BackboneFault.CORRUPT,
            ) from error


def weight_files(folder: Path) -> list[Path]:
    """The files that transformers loads weights from; others beside them do not count.

    Raises:
        BackboneError: there are none.
    """
    for name in ("model.safetensors", "pytorch_model.bin"):
        whole, index = folder / name, folder / f"{name}.index.json"
        if whole.exists():
            return [whole]
        if index.exists():
            shards = read_json(index).get("weight_map")
            if not isinstance(shards, dict) or not shards:
                raise BackboneError(
                    f"{index} has no weight_map, which names the files of weights.",
                    code=BackboneFault.CORRUPT,
                )
            return [folder / name for name in sorted(set(shards.values()))]
    raise BackboneError(
        f"{folder} holds no weights; put model.safetensors beside config.json.",
        code=BackboneFault.NOT_FOUND,
    )
