"""`capsule inspect`: what a capsule file says about itself and what it holds."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table

from capsules.artefact.disk import read_bytes
from capsules.artefact.file import Capsule, digest, parse
from capsules.cli.output import Output, cell, pairs_table

SHOWN_LABELS = 20


def run(file: Path, output: Output) -> None:
    """Check a capsule file and show what is in it.

    Raises:
        ArtefactError: it is malformed, or cannot be read.
    """
    data = read_bytes(file)
    capsule = parse(data)
    tensors = {
        name: {"shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}
        for name, tensor in sorted(capsule.tensors.items())
    }
    document = {
        "file": str(file),
        "bytes": len(data),
        "digest": digest(data),
        "parameters": sum(tensor.numel() for tensor in capsule.tensors.values()),
        "tensors": tensors,
        "manifest": capsule.manifest.model_dump(mode="json"),
    }
    facts = list(facts_of(capsule, document))
    output.show(
        document=document,
        rows=lines(facts, document, capsule),
        table=lambda: Group(
            pairs_table(str(file), [*facts, ("labels", shortened(capsule.manifest.labels))]),
            tensor_table(tensors),
        ),
    )


def facts_of(capsule: Capsule, document: dict[str, Any]) -> Iterator[tuple[str, object]]:
    """The single values, by name."""
    manifest = capsule.manifest
    yield "task", manifest.task
    yield "description", manifest.description
    yield "bytes", document["bytes"]
    yield "digest", document["digest"]
    yield "parameters", document["parameters"]
    yield "backbone", manifest.backbone.id
    yield "fingerprint", manifest.backbone.fingerprint
    yield "variant", manifest.variant
    yield "length", manifest.length
    yield "layers", layers_text(manifest.layers)
    yield "template", manifest.template
    yield "max_length", manifest.max_length
    yield "golden", len(manifest.golden)
    if manifest.training is not None:
        for name, value in manifest.training.metrics.items():
            yield name, f"{value:.4f}"


def lines(
    facts: list[tuple[str, object]], document: dict[str, Any], capsule: Capsule
) -> Iterator[tuple[object, ...]]:
    """All of it as lines, the first cell of each saying what it holds."""
    yield from facts
    for label in capsule.manifest.labels:
        yield ("label", label)
    for name, tensor in document["tensors"].items():
        yield ("tensor", name, shape_text(tensor["shape"]), tensor["dtype"])


def tensor_table(tensors: dict[str, dict[str, Any]]) -> Table:
    """Names, shapes and number formats."""
    table = Table(title="Tensors", title_justify="left")
    for heading in ("name", "shape", "dtype"):
        table.add_column(heading)
    for name, tensor in tensors.items():
        table.add_row(cell(name), shape_text(tensor["shape"]), tensor["dtype"])
    return table


def layers_text(choice: str | list[int]) -> str:
    """A choice of layers for people, such as `odd` or `1,3`."""
    return choice if isinstance(choice, str) else ",".join(map(str, choice))


def shape_text(shape: list[int]) -> str:
    """A shape for people, such as `6 x 1 x 384`."""
    return " x ".join(str(size) for size in shape)


def shortened(labels: list[str]) -> str:
    """The labels, or the first of them and how many there are."""
    shown = ", ".join(labels[:SHOWN_LABELS])
    if len(labels) <= SHOWN_LABELS:
        return shown
    return f"{shown}, and {len(labels) - SHOWN_LABELS:,} more"
