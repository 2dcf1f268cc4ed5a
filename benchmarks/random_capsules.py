"""Capsules with random tensors: as costly as trained ones, and as many as are wanted."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from capsules.artefact.checks import expected_shapes
from capsules.artefact.file import Capsule, digest, dump
from capsules.artefact.manifest import Manifest
from capsules.artefact.reference import reference
from capsules.backbones.base import BackboneInfo
from service.engine.bank import Bank
from service.engine.records import Served
from service.store import open_store

MIXED_LABELS = (2, 3, 6, 7, 20, 77, 151)
"""Label counts of real tasks, few and many."""

TWO_LABELS = (2,)
DEVIATION = 0.02


def random_capsules(
    info: BackboneInfo, count: int, labels: Sequence[int] = MIXED_LABELS
) -> Iterator[Capsule]:
    """Capsules of `count` tasks, always the same ones.

    Args:
        info: the backbone that they are for.
        count: how many.
        labels: label counts, which they take in turn.
    """
    generator = torch.Generator().manual_seed(0)
    for number in range(count):
        manifest = Manifest(
            task=f"task-{number:05d}",
            backbone=reference(info),
            labels=[f"label-{label}" for label in range(labels[number % len(labels)])],
            max_length=info.max_tokens,
        )
        tensors = {
            name: torch.randn(shape, generator=generator) * DEVIATION
            for name, shape in expected_shapes(manifest).items()
        }
        yield Capsule(manifest=manifest, tensors=tensors)


def fill_bank(bank: Bank, capsules: Iterator[Capsule]) -> list[Served]:
    """Add capsules to a bank, each as the first version of its task."""
    return [
        bank.add(capsule, version=1, digest=digest(capsule.manifest.task.encode()))
        for capsule in capsules
    ]


def fill_store(folder: Path, capsules: Iterator[Capsule]) -> list[int]:
    """Put capsules into the store of a data directory, where a server finds them at its start.

    Returns:
        The size of each one's file, in bytes.
    """
    sizes = []
    store = open_store(folder)
    try:
        for capsule in capsules:
            data = dump(capsule)
            manifest = capsule.manifest.model_dump(mode="json")
            store.add_version(capsule.manifest.task, digest(data), manifest, data, "upload")
            sizes.append(len(data))
    finally:
        store.close()
    return sizes
