"""Capsules with random tensors: as costly as trained ones, and as many as are wanted."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
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
from service.store.additions import add
from service.store.sql import SqlStore

MIXED_LABELS = (2, 3, 6, 7, 20, 77, 151)
"""Label counts of real tasks, few and many."""

TWO_LABELS = (2,)
USUAL_VARIANT = ("addition",)
DEVIATION = 0.02
CHUNK = 500


def random_capsules(
    info: BackboneInfo,
    count: int,
    labels: Sequence[int] = MIXED_LABELS,
    variants: Sequence[str] = USUAL_VARIANT,
) -> Iterator[Capsule]:
    """Capsules of `count` tasks, always the same ones.

    Args:
        info: the backbone that they are for.
        count: how many.
        labels: label counts, which they take in turn.
        variants: names of variants, likewise.
    """
    reads_words = info.family == "encoder-decoder"
    generator = torch.Generator().manual_seed(0)
    for number in range(count):
        names = [label_name(label) for label in range(labels[number % len(labels)])]
        manifest = Manifest(
            task=f"task-{number:05d}",
            backbone=reference(info),
            variant=variants[number % len(variants)],
            labels=names,
            verbalizers={name: name for name in names} if reads_words else None,
            max_length=info.max_tokens,
        )
        tensors = {
            name: torch.randn(shape, generator=generator) * DEVIATION
            for name, shape in expected_shapes(manifest).items()
        }
        yield Capsule(manifest=manifest, tensors=tensors)


def label_name(number: int) -> str:
    """What a label is called, and its word where labels are words."""
    return f"label-{number}"


def fill_bank(bank: Bank, capsules: Iterator[Capsule]) -> list[Served]:
    """Add capsules to a bank, each as the first version of its task."""
    return [
        bank.add(capsule, version=1, digest=digest(capsule.manifest.task.encode()))
        for capsule in capsules
    ]


def fill_store(folder: Path, capsules: Iterable[Capsule]) -> list[int]:
    """Put capsules into the store of a data directory, where a server finds them at its start.

    Hundreds share a commit: one each, as uploads have, takes minutes for what a benchmark needs.

    Returns:
        The size of each one's file, in bytes.
    """
    sizes = []
    store = open_store(folder)
    assert isinstance(store, SqlStore), "a data directory has a store in SQL"
    remaining = iter(capsules)
    try:
        while chunk := list(islice(remaining, CHUNK)):
            with store.writing() as session:
                for capsule in chunk:
                    data = dump(capsule)
                    manifest = capsule.manifest.model_dump(mode="json")
                    task, at = capsule.manifest.task, store.now()
                    add(session, task, digest(data), manifest, data, "upload", at)
                    sizes.append(len(data))
    finally:
        store.close()
    return sizes
