"""Capsules with random or chosen tensors."""

from collections.abc import Sequence

import torch

from capsules.artefact.checks import expected_shapes
from capsules.artefact.file import Capsule
from capsules.artefact.manifest import Manifest
from capsules.artefact.reference import reference
from capsules.backbones.base import BackboneInfo


def manifest_for(
    info: BackboneInfo,
    *,
    task: str = "task",
    labels: int | Sequence[str] = 3,
    length: int = 1,
    variant: str = "addition",
    template: str = "{text}",
    max_length: int | None = None,
) -> Manifest:
    """A manifest for a backbone; `labels` are names, or how many to make up."""
    names = [f"label-{n}" for n in range(labels)] if isinstance(labels, int) else list(labels)
    return Manifest(
        task=task,
        backbone=reference(info),
        variant=variant,
        length=length,
        labels=names,
        template=template,
        max_length=max_length or info.max_tokens,
    )


def random_capsule(
    info: BackboneInfo,
    *,
    task: str = "task",
    labels: int | Sequence[str] = 3,
    length: int = 1,
    variant: str = "addition",
    template: str = "{text}",
    max_length: int | None = None,
    seed: int = 0,
    scale: float = 0.5,
) -> Capsule:
    """A capsule whose tensors are normal with deviation `scale`, the same for the same seed."""
    manifest = manifest_for(
        info,
        task=task,
        labels=labels,
        length=length,
        variant=variant,
        template=template,
        max_length=max_length,
    )
    generator = torch.Generator().manual_seed(seed)
    tensors = {
        name: torch.randn(shape, generator=generator) * scale
        for name, shape in expected_shapes(manifest).items()
    }
    return Capsule(manifest=manifest, tensors=tensors)


def constant_capsule(
    info: BackboneInfo, probs: Sequence[float], *, task: str = "task", length: int = 1
) -> Capsule:
    """A capsule that answers every text with the same probabilities, whatever the backbone says."""
    capsule = random_capsule(info, task=task, labels=len(probs), length=length)
    head = {
        "head.weight": torch.zeros(len(probs), info.hidden_size),
        "head.bias": torch.tensor(probs).log(),
    }
    return Capsule(manifest=capsule.manifest, tensors={**capsule.tensors, **head})
