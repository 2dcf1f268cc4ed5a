"""Where capsule versions are kept; knows nothing of HTTP, tensors or what a manifest means."""

from service.store.base import (
    AliasRecord,
    Change,
    ChangeKind,
    Removal,
    Source,
    Store,
    TaskSummary,
    VersionRecord,
)
from service.store.open import open_store

__all__ = [
    "AliasRecord",
    "Change",
    "ChangeKind",
    "Removal",
    "Source",
    "Store",
    "TaskSummary",
    "VersionRecord",
    "open_store",
]
