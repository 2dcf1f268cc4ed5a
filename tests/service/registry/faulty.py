"""For each fault of an artefact, a file that has it and is otherwise in order."""

import json
import pickle
import struct
from collections.abc import Callable, Mapping
from typing import Any

import safetensors.torch
import torch

from capsules.artefact.file import METADATA_KEY
from capsules.errors import ArtefactFault
from tests.service.registry.samples import OTHER_FINGERPRINT, a_capsule, an_artefact
from tests.support.malformed import overlap, with_header


def file_of(
    manifest: Mapping[str, Any] | None = None, tensors: Mapping[str, Any] | None = None
) -> bytes:
    """A file with some keys of its manifest or some tensors replaced, or left out where None."""
    capsule = a_capsule()
    keys = {**capsule.manifest.model_dump(mode="json"), **(manifest or {})}
    values = {**capsule.tensors, **(tensors or {})}
    return safetensors.torch.save(
        {name: value for name, value in values.items() if value is not None},
        metadata={METADATA_KEY: json.dumps(keys)},
    )


def framed(header: bytes, body: bytes = b"", length: int | None = None) -> bytes:
    return struct.pack("<Q", len(header) if length is None else length) + header + body


def golden_of_another() -> bytes:
    probs = [0.5, 0.5]
    golden = [{"inputs": {"text": "what is this"}, "label": "no", "probs": probs}]
    return an_artefact(golden=golden)


FAULTY: dict[ArtefactFault, Callable[[], bytes]] = {
    ArtefactFault.TOO_SMALL: lambda: b"capsule",
    ArtefactFault.NOT_SAFETENSORS: lambda: pickle.dumps({"capsule": list(range(100))}),
    ArtefactFault.HEADER_TOO_LARGE: lambda: framed(b"{}", length=2**63),
    ArtefactFault.INVALID_HEADER: lambda: with_header(file_of(), overlap),
    ArtefactFault.TRUNCATED: lambda: an_artefact()[:-4],
    ArtefactFault.MISSING_MANIFEST: lambda: safetensors.torch.save({"capsule": torch.ones(2)}),
    ArtefactFault.INVALID_MANIFEST: lambda: file_of({"task": "../etc"}),
    ArtefactFault.UNSUPPORTED_SCHEMA_VERSION: lambda: file_of({"schema_version": 2}),
    ArtefactFault.UNSUPPORTED_VARIANT: lambda: file_of({"variant": "telepathy"}),
    ArtefactFault.UNSUPPORTED_LAYERS: lambda: file_of({"layers": "some"}),
    ArtefactFault.INVALID_LABELS: lambda: file_of({"labels": ["yes", "yes"]}),
    ArtefactFault.INVALID_TEMPLATE: lambda: file_of({"template": "{text.__class__}"}),
    ArtefactFault.INVALID_MAX_LENGTH: lambda: file_of({"max_length": 512}),
    ArtefactFault.MISSING_TENSOR: lambda: file_of(tensors={"head.bias": None}),
    ArtefactFault.UNEXPECTED_TENSOR: lambda: file_of(tensors={"extra": torch.ones(1)}),
    ArtefactFault.TENSOR_DTYPE: lambda: file_of(tensors={"head.bias": torch.ones(2).half()}),
    ArtefactFault.TENSOR_SHAPE: lambda: file_of(tensors={"head.bias": torch.ones(3)}),
    ArtefactFault.NON_FINITE_TENSOR: lambda: file_of(
        tensors={"head.bias": torch.tensor([1.0, float("nan")])}
    ),
    ArtefactFault.BACKBONE_MISMATCH: lambda: an_artefact(fingerprint=OTHER_FINGERPRINT),
    ArtefactFault.GOLDEN_MISMATCH: golden_of_another,
}
