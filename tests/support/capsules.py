"""Capsules with random or chosen tensors."""

from collections.abc import Mapping, Sequence

import torch

from capsules.artefact.checks import expected_shapes
from capsules.artefact.file import Capsule
from capsules.artefact.manifest import Manifest
from capsules.artefact.reference import reference
from capsules.backbones.base import BackboneInfo
from capsules.layers import NamedLayers
from tests.support.backbones import WORDS


def manifest_for(
    info: BackboneInfo,
    *,
    task: str = "task",
    labels: int | Sequence[str] = 3,
    length: int = 1,
    variant: str = "addition",
    template: str = "{text}",
    max_length: int | None = None,
    layers: NamedLayers | list[int] = "all",
    verbalizers: Mapping[str, str] | None = None,
) -> Manifest:
    """A manifest for a backbone; `labels` are names, or how many to make up.

    Where labels are words and no verbalizers are given, each label is a word of its own.
    """
    names = [f"label-{n}" for n in range(labels)] if isinstance(labels, int) else list(labels)
    if info.family == "encoder-decoder" and verbalizers is None:
        verbalizers = {name: WORDS[number] for number, name in enumerate(names)}
    return Manifest(
        task=task,
        backbone=reference(info),
        variant=variant,
        length=length,
        layers=layers,
        labels=names,
        verbalizers=None if verbalizers is None else dict(verbalizers),
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
    layers: NamedLayers | list[int] = "all",
    verbalizers: Mapping[str, str] | None = None,
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
        layers=layers,
        verbalizers=verbalizers,
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
