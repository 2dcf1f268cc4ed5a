"""Capsule files that are wrong in one way each."""

import json
import pickle
import struct
from collections.abc import Callable, Mapping
from typing import Any

import safetensors.torch
import torch

from capsules.artefact.file import METADATA_KEY, Capsule, dump
from capsules.backbones.base import BackboneInfo
from tests.support.capsules import random_capsule

HEADER_AT = 8


def saved(
    capsule: Capsule, tensors: Mapping[str, torch.Tensor] | None = None, **keys: Any
) -> bytes:
    """A file that nobody checked: with other tensors, or with manifest keys replaced."""
    manifest = {**capsule.manifest.model_dump(mode="json"), **keys}
    metadata = {METADATA_KEY: json.dumps(manifest)}
    return safetensors.torch.save(dict(tensors or capsule.tensors), metadata=metadata)


def with_header(data: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    """A file whose header was changed afterwards."""
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[HEADER_AT : HEADER_AT + length])
    change(header)
    raw = json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + data[HEADER_AT + length :]


def overlap(header: dict[str, Any]) -> None:
    """Let all tensors begin at byte 0."""
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            entry["data_offsets"] = [0, end - begin]


def many_tensors(header: dict[str, Any]) -> None:
    """Name thousands of tensors without elements."""
    end = max(entry["data_offsets"][1] for name, entry in header.items() if name[0] != "_")
    for number in range(7000):
        header[f"extra{number}"] = {"dtype": "F32", "shape": [0], "data_offsets": [end, end]}


def training(**keys: Any) -> dict[str, Any]:
    """How a capsule came to be, with some keys replaced."""
    return {
        "data_digest": "0" * 64,
        "splits": {"train": 3, "validation": 2, "test": 0},
        "seed": 0,
        "epochs": 1,
        "best_epoch": 1,
        "batch_size": 16,
        "learning_rate": 0.1,
        "metrics": {},
        "duration_seconds": 1.0,
        "library_versions": {},
        **keys,
    }


def malformed(info: BackboneInfo) -> dict[str, tuple[bytes, str]]:
    """Files by what is wrong with them, each with the code of its fault."""
    capsule = random_capsule(info, task="bad")
    good = dump(capsule)
    holed = {**capsule.tensors, "head.bias": torch.tensor([0.0, float("nan"), 0.0])}
    halved = {name: tensor.half() for name, tensor in capsule.tensors.items()}
    reshaped = {**capsule.tensors, "head.bias": torch.zeros(4)}
    fewer = {name: t for name, t in capsule.tensors.items() if name != "head.bias"}
    more = {**capsule.tensors, "extra": torch.zeros(1)}
    backbone = capsule.manifest.backbone.model_dump()
    files = {
        "empty": (b"", "artefact_too_small"),
        "pickle": (pickle.dumps({"capsule": [1.0] * 100}), "not_safetensors"),
        "zip": (b"PK\x03\x04" + bytes(100), "not_safetensors"),
        "cut short": (good[: len(good) - 40], "artefact_truncated"),
        "cut in the header": (good[:100], "artefact_truncated"),
        "header of 2^63 bytes": (struct.pack("<Q", 2**63) + good[8:], "header_too_large"),
        "header longer than the file": (
            struct.pack("<Q", len(good)) + good[8:],
            "artefact_truncated",
        ),
        "header that is not JSON": (struct.pack("<Q", 20) + b"{" * 100, "invalid_header"),
        "header nested deeply": (
            struct.pack("<Q", 100_000) + b'{"a":' * 20_000 + bytes(10),
            "invalid_header",
        ),
        "overlapping offsets": (with_header(good, overlap), "invalid_header"),
        "no manifest": (safetensors.torch.save(dict(capsule.tensors)), "missing_manifest"),
        "NaN": (saved(capsule, holed), "non_finite_tensor"),
        "half precision": (saved(capsule, halved), "tensor_dtype"),
        "another shape": (saved(capsule, reshaped), "tensor_shape"),
        "a tensor missing": (saved(capsule, fewer), "missing_tensor"),
        "a tensor too many": (saved(capsule, more), "unexpected_tensor"),
        "another backbone": (
            saved(capsule, backbone={**backbone, "fingerprint": "0" * 64}),
            "backbone_mismatch",
        ),
        "another schema": (saved(capsule, schema_version=2), "unsupported_schema_version"),
        "unknown variant": (saved(capsule, variant="magic"), "unsupported_variant"),
        "repeated labels": (saved(capsule, labels=["a", "a", "b"]), "invalid_labels"),
        "blank label": (saved(capsule, labels=["a", "\u200b", "b"]), "invalid_labels"),
        "template that multiplies": (saved(capsule, template="{text}" * 682), "invalid_template"),
        "template with an empty specification": (
            saved(capsule, template="{text:}"),
            "invalid_template",
        ),
        "golden text that is too long": (
            saved(
                capsule,
                golden=[
                    {
                        "inputs": {"text": "a" * 100_001},
                        "label": "label-0",
                        "probs": [1.0, 0.0, 0.0],
                    }
                ],
            ),
            "invalid_manifest",
        ),
        "half a surrogate pair in a value": (
            saved(capsule, training=training(library_versions={"torch": "\ud800"})),
            "invalid_manifest",
        ),
        "half a surrogate pair in a key": (
            saved(capsule, training=training(metrics={"f1\udc00": 1.0})),
            "invalid_manifest",
        ),
        "many tensors": (with_header(good, many_tensors), "invalid_header"),
        "many dimensions": (
            with_header(good, lambda header: header["capsule"].update(shape=[0] * 70_000)),
            "invalid_header",
        ),
        "many values in the manifest": (saved(capsule, more=[[]] * 140_000), "invalid_manifest"),
        "schema version with a point": (
            saved(capsule, schema_version=1.0),
            "unsupported_schema_version",
        ),
        "broken template": (saved(capsule, template="{text!r}"), "invalid_template"),
        "no room for text": (saved(capsule, max_length=3), "invalid_max_length"),
        "golden that does not replay": (
            saved(
                capsule,
                golden=[{"inputs": {"text": "a"}, "label": "label-0", "probs": [1.0, 0.0, 0.0]}],
            ),
            "golden_mismatch",
        ),
    }
    for name in ("a/b", "..", "../../etc", "😀", "x" * 300, "", "Upper", "latest", "a\x00b"):
        files[f"task named {name[:10]!r}"] = (saved(capsule, task=name), "invalid_manifest")
    return files
