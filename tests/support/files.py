"""Capsule files taken apart and put together again, well or badly."""

import json
import struct
from dataclasses import replace
from typing import Any

from capsules.artefact.file import METADATA_KEY
from tests.support import claimed

INFO = replace(claimed.INFO, max_tokens=64)


def assemble(header: object, body: bytes = b"", *, length: int | None = None) -> bytes:
    """A file with this header (JSON unless it is bytes) and body.

    Args:
        header: JSON value, or bytes to take as they are.
        body: the tensors.
        length: what the file claims of its header, if not the truth.
    """
    encoded = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(encoded) if length is None else length) + encoded + body


def take_apart(data: bytes) -> tuple[dict[str, Any], bytes]:
    """The header and the body of a file."""
    (length,) = struct.unpack_from("<Q", data)
    header: dict[str, Any] = json.loads(data[8 : 8 + length])
    return header, data[8 + length :]


def manifest_of(data: bytes) -> dict[str, Any]:
    """The manifest of a file, as it stands there."""
    manifest: dict[str, Any] = json.loads(take_apart(data)[0]["__metadata__"][METADATA_KEY])
    return manifest


def with_manifest(data: bytes, manifest: object) -> bytes:
    """A file with another manifest: JSON, or a string to take as it is."""
    header, body = take_apart(data)
    text = manifest if isinstance(manifest, str) else json.dumps(manifest)
    header["__metadata__"] = {METADATA_KEY: text}
    return assemble(header, body)
