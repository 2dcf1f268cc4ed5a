"""What the store's tests put into it."""

import hashlib
from typing import Any

from service.store.base import Source, Store, VersionRecord

MANIFEST: dict[str, Any] = {
    "task": "spam",
    "labels": ["ham", "späm 🙂"],
    "golden": [{"inputs": {"text": 'a "quoted" \\ line\n\x00'}, "probs": [0.25, 0.75]}],
    "training": {"epochs": 3, "best": None, "early": True},
}


def digest_of(artefact: bytes) -> str:
    return hashlib.sha256(artefact).hexdigest()


def add(
    store: Store,
    task: str = "spam",
    artefact: bytes = b"one",
    *,
    manifest: dict[str, Any] | None = None,
    source: Source = "upload",
) -> VersionRecord:
    record, _ = store.add_version(
        task, digest_of(artefact), MANIFEST if manifest is None else manifest, artefact, source
    )
    return record
