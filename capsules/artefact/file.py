"""Reads and writes capsule files, refusing every malformed one with its own fault."""

import hashlib
import json
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch

from capsules.artefact.checks import check_manifest, check_tensors
from capsules.artefact.disk import read_bytes
from capsules.artefact.manifest import Manifest, parse_manifest
from capsules.errors import ArtefactError, ArtefactFault
from capsules.json_text import holds_more

METADATA = "__metadata__"
METADATA_KEY = "capsule"
LENGTH_BYTES = 8
MAX_HEADER_BYTES = 8 * 1024 * 1024
MAX_TENSORS = 64
# JSON values, nested ones included: of thousands of tensors, and of the most labels with a word
# and eight golden probabilities each.
MAX_HEADER_VALUES = 65_536
MAX_MANIFEST_VALUES = 131_072
EXCERPT_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Capsule:
    """A capsule in memory: what it says about itself, and its learned tensors, float32."""

    manifest: Manifest
    tensors: Mapping[str, torch.Tensor]


def digest(data: bytes) -> str:
    """Hex sha256 of a capsule file, which names it everywhere."""
    return hashlib.sha256(data).hexdigest()


def dump(capsule: Capsule) -> bytes:
    """The bytes of a capsule file; equal capsules give equal bytes.

    Raises:
        ArtefactError: the capsule breaks one of the rules that :func:`parse` checks.
    """
    check_manifest(capsule.manifest)
    check_tensors(capsule.manifest, capsule.tensors)
    manifest = json.dumps(
        capsule.manifest.model_dump(mode="json"), ensure_ascii=False, separators=(",", ":")
    )
    tensors = {name: capsule.tensors[name].contiguous() for name in sorted(capsule.tensors)}
    data = safetensors.torch.save(tensors, metadata={METADATA_KEY: manifest})
    # Thousands of long labels can outgrow the header that a reader accepts.
    read_header(data)
    return data


def parse(data: bytes) -> Capsule:
    """Read a capsule file and check everything that does not need its backbone.

    Args:
        data: the file's bytes.

    Raises:
        ArtefactError: with the fault of the first check that fails.
    """
    header = read_header(data)
    manifest = read_manifest(header)
    check_manifest(manifest)
    tensors = read_tensors(data, header)
    check_tensors(manifest, tensors)
    return Capsule(manifest=manifest, tensors=tensors)


def read(path: Path) -> Capsule:
    """:func:`parse` a file on disk.

    Raises:
        ArtefactError: it is malformed, cannot be read, or is larger than any capsule.
    """
    return parse(read_bytes(path))


def read_header(data: bytes) -> dict[str, Any]:
    """The safetensors header, as far as its own framing can be trusted.

    Raises:
        ArtefactError: this is not a safetensors file, or the file was cut short.
    """
    if len(data) < LENGTH_BYTES + 2:
        raise ArtefactError(
            f"The file has {len(data)} bytes, too few for a safetensors file; upload a file that "
            "the trainer wrote.",
            code=ArtefactFault.TOO_SMALL,
        )
    (length,) = struct.unpack_from("<Q", data)
    # The header is checked before its length, since any other format reads as a huge length.
    if data[LENGTH_BYTES : LENGTH_BYTES + 1] != b"{":
        raise ArtefactError(
            "The file is not in safetensors format; pickles and other formats are not accepted.",
            code=ArtefactFault.NOT_SAFETENSORS,
        )
    if length > MAX_HEADER_BYTES:
        raise ArtefactError(
            f"The header claims {length} bytes; at most {MAX_HEADER_BYTES} are accepted.",
            code=ArtefactFault.HEADER_TOO_LARGE,
        )
    if length > len(data) - LENGTH_BYTES:
        raise truncated(f"the header claims {length} bytes")
    text = data[LENGTH_BYTES : LENGTH_BYTES + length]
    if holds_more(text, MAX_HEADER_VALUES):
        raise ArtefactError(
            f"The safetensors header is not that of a capsule: it holds more than "
            f"{MAX_HEADER_VALUES} values.",
            code=ArtefactFault.INVALID_HEADER,
        )
    try:
        # Decoded first, since the parser would take other encodings too.
        header = json.loads(text.decode(), object_pairs_hook=distinct_keys)
    except (ValueError, RecursionError) as error:
        raise ArtefactError(
            f"The safetensors header is not valid JSON: {error}.",
            code=ArtefactFault.INVALID_HEADER,
        ) from error
    assert isinstance(header, dict), "JSON that begins with a brace is an object"
    check_metadata(header.get(METADATA))
    check_extent(header, len(data) - LENGTH_BYTES - length)
    return header


def check_metadata(metadata: object) -> None:
    """The format's metadata is an object of strings; only ours is looked at.

    Raises:
        ArtefactError: it is something else.
    """
    if metadata is not None and not isinstance(metadata, dict):
        what = METADATA
    elif metadata and not isinstance(metadata.get(METADATA_KEY, ""), str):
        what = f"{METADATA}.{METADATA_KEY}"
    else:
        return
    raise ArtefactError(
        f"The safetensors header is not valid: its {what} has the wrong type.",
        code=ArtefactFault.INVALID_HEADER,
    )


def check_extent(header: Mapping[str, Any], available: int) -> None:
    """Tell a file cut short from other faults, which safetensors reports as one.

    Raises:
        ArtefactError: a tensor ends after the file does.
    """
    ends = [
        entry["data_offsets"][1]
        for name, entry in header.items()
        if name != METADATA
        and isinstance(entry, dict)
        and isinstance(entry.get("data_offsets"), list)
        and len(entry["data_offsets"]) == 2
        and isinstance(entry["data_offsets"][1], int)
    ]
    if ends and max(ends) > available:
        raise truncated(f"its tensors take {max(ends)} bytes, and {available} follow the header")


def truncated(evidence: str) -> ArtefactError:
    """The error for a file that was cut short."""
    return ArtefactError(
        f"The file was cut short: {evidence}. Upload it again.", code=ArtefactFault.TRUNCATED
    )


def distinct_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; readers differ in which of two equal keys they take, so neither is.

    Raises:
        ValueError: a key occurs twice.
    """
    value = dict(pairs)
    if len(value) < len(pairs):
        twice = next(name for name, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"the key {twice!r} occurs twice")
    return value


def read_tensors(data: bytes, header: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """The tensors of a file.

    Args:
        data: the file's bytes.
        header: what :func:`read_header` has read from them.

    Raises:
        ArtefactError: names, types, shapes and offsets do not fit each other or the file, or there
            are more tensors than any capsule has.
    """
    names = len(header) - (METADATA in header)
    if names > MAX_TENSORS:
        raise ArtefactError(
            f"The safetensors header is not that of a capsule: it names {names} tensors, and at "
            f"most {MAX_TENSORS} are read.",
            code=ArtefactFault.INVALID_HEADER,
        )
    try:
        return safetensors.torch.load(data)
    # The last two come from torch, for empty tensors with sizes that no tensor can have.
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise ArtefactError(
            f"The safetensors header is not valid: {reason}.", code=ArtefactFault.INVALID_HEADER
        ) from error


def read_manifest(header: Mapping[str, Any]) -> Manifest:
    """The manifest from a safetensors header.

    Raises:
        ArtefactError: there is none, or it is not valid.
    """
    metadata = header.get(METADATA) or {}
    if METADATA_KEY not in metadata:
        raise ArtefactError(
            f"The header's metadata has no {METADATA_KEY!r} key; this is a safetensors file, but "
            "not a capsule.",
            code=ArtefactFault.MISSING_MANIFEST,
            field=METADATA_KEY,
        )
    text = metadata[METADATA_KEY]
    # Half surrogate pairs are told below, by the key that holds them.
    if holds_more(text.encode(errors="surrogatepass"), MAX_MANIFEST_VALUES):
        raise not_a_manifest(f"that of a capsule: it holds more than {MAX_MANIFEST_VALUES} values")
    try:
        value = json.loads(text, object_pairs_hook=distinct_keys)
        if isinstance(value, dict):
            check_unicode(value)
    except (ValueError, RecursionError) as error:
        raise not_a_manifest(f"valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise not_a_manifest("a JSON object")
    return parse_manifest(value)


def check_unicode(manifest: Mapping[str, Any]) -> None:
    """Refuse half a surrogate pair, which JSON can escape but no reply and no other file can hold.

    Raises:
        ArtefactError: a key or a string has one, however deep.
    """
    try:
        json.dumps(manifest, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        pass  # key by key, since the error names the one that holds it
    else:
        return
    for key, value in manifest.items():
        written = json.dumps({key: value}, ensure_ascii=False)
        try:
            written.encode()
        except UnicodeEncodeError as error:
            field = key.encode(errors="backslashreplace").decode()
            before = written[max(0, error.start - EXCERPT_CHARACTERS) : error.start]
            raise ArtefactError(
                f"The manifest's {field} is not valid: half a surrogate pair follows {before!r}; "
                "write well-formed Unicode.",
                code=ArtefactFault.INVALID_MANIFEST,
                field=field,
            ) from error


def not_a_manifest(what: str) -> ArtefactError:
    """The error for a manifest that is not what it should be."""
    return ArtefactError(
        f"The manifest is not {what}.", code=ArtefactFault.INVALID_MANIFEST, field=METADATA_KEY
    )
