"""From the bytes of an artefact to a capsule that this backbone can run, or the fault that bars it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import structlog

from capsules.artefact.checks import check_backbone
from capsules.artefact.file import Capsule, digest, parse
from capsules.artefact.reference import reference
from capsules.backbones.base import BackboneInfo
from capsules.errors import ArtefactError, ArtefactFault
from service.engine.records import Served
from service.registry.snapshot import Refusal, VersionEntry
from service.store.base import VersionRecord

UNUSABLE = "version_not_servable"

logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True)
class Candidate:
    """An artefact that has passed every check that needs no model.

    Attributes:
        capsule: parsed.
        digest: hex sha256 of the file.
        data: the file, byte for byte.
    """

    capsule: Capsule
    digest: str
    data: bytes

    @property
    def task(self) -> str:
        """The task it is for."""
        return self.capsule.manifest.task

    @cached_property
    def manifest(self) -> Mapping[str, Any]:
        """What its manifest says, as the store keeps it and replies tell it.

        Raises:
            ValueError: that cannot be written as JSON in UTF-8, so nothing may be stored.
        """
        told = self.capsule.manifest.model_dump(mode="json")
        json.dumps(told, ensure_ascii=False, allow_nan=False).encode()
        return told


class Intake:
    """The checks of artefacts for one backbone.

    Args:
        backbone: the one that is loaded.
    """

    def __init__(self, backbone: BackboneInfo) -> None:
        self.max_tokens = backbone.max_tokens
        self.reference = reference(backbone)

    def examine(self, data: bytes) -> Candidate:
        """Check an artefact that has arrived.

        Raises:
            ArtefactError: with the fault of the first check that fails.
        """
        candidate = Candidate(capsule=self.parse(data), digest=digest(data), data=data)
        _ = candidate.manifest  # now, as the store and replies only read it
        return candidate

    def admit_stored(self, record: VersionRecord, data: bytes) -> Candidate | Refusal:
        """Check an artefact that was accepted before, and log what is wrong with it.

        Versions of another backbone are not logged: nothing is wrong with them. What a file is
        tells its digest, so it is admitted where only its record has decayed.
        """
        if record.damaged:
            logger.error(
                "record_damaged",
                task=record.task,
                version=record.version,
                columns=record.damaged,
                remedy="delete the version, then upload its file again",
            )
        candidate = self.examine_stored(record, data)
        if isinstance(candidate, Refusal) and candidate.code != ArtefactFault.BACKBONE_MISMATCH:
            tell_unserved(record, candidate)
        return candidate

    def examine_stored(self, record: VersionRecord, data: bytes) -> Candidate | Refusal:
        """Check an artefact that was accepted before; disks decay, and backbones are swapped."""
        name = f"Version {record.version} of task {record.task!r}"
        found = digest(data)
        if found != record.digest:
            return Refusal(
                UNUSABLE,
                f"{name} is damaged: its bytes have changed since they were stored (sha256 "
                f"{found[:12]}…, stored as {record.digest[:12]}…). Delete it, then upload the file "
                "again.",
            )
        try:
            capsule = self.parse(data)
        except ArtefactError as error:
            if error.code == ArtefactFault.BACKBONE_MISMATCH:
                return Refusal(error.code, f"{name} cannot be served here. {error.message}")
            # The bytes are those that were once accepted, so another release wrote them.
            return Refusal(
                UNUSABLE,
                f"{name} cannot be read by this release. {error.message} Start the release that "
                "stored it, or delete it.",
            )
        if capsule.manifest.task != record.task:
            return Refusal(
                UNUSABLE,
                f"{name} is stored under the wrong task: its manifest names "
                f"{capsule.manifest.task!r}. "
                "Delete it, then upload the file again.",
            )
        return Candidate(capsule=capsule, digest=found, data=data)

    def parse(self, data: bytes) -> Capsule:
        """Read a file and check it against the backbone.

        Raises:
            ArtefactError: with the fault of the first check that fails.
        """
        capsule = parse(data)
        check_backbone(capsule.manifest, self.reference, self.max_tokens)
        return capsule


def tell_unserved(record: VersionRecord, refusal: Refusal) -> None:
    """Have the log say that a stored version cannot be classified with, and why."""
    logger.error(
        "capsule_not_served", task=record.task, version=record.version, reason=refusal.detail
    )


def entry_of(record: VersionRecord, capsule: Served | Refusal) -> VersionEntry:
    """What the catalogue keeps of a stored version.

    Of a damaged one the record may hold anything, so what it says is not trusted.
    """
    manifest: object = record.manifest
    keys = manifest if isinstance(manifest, Mapping) else {}
    labels, description = keys.get("labels"), keys.get("description")
    return VersionEntry(
        version=record.version,
        # One string for both, since there are thousands.
        digest=capsule.digest if isinstance(capsule, Served) else record.digest,
        size=record.size,
        created_at=record.created_at,
        source=record.source,
        held=record.held,
        labels=len(labels) if isinstance(labels, list) else 0,
        description=description if isinstance(description, str) else "",
        capsule=capsule,
    )
