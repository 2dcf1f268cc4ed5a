"""Graphs of tiny backbones, exported anew whenever what they are made of has changed."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from filelock import FileLock

from capsules.backbones.base import Backbone
from capsules.executors.onnx.cache import GraphCache
from capsules.executors.onnx.export import export
from capsules.executors.onnx.runtime import OnnxRuntimeExecutor
from tests.support.commands import GRAPHS, ROOT
from tests.support.families import subject_of
from tests.support.models import MODELS

# What is read at the end differs, how attention works, and how positions are told.
EXPORTED = ("bert", "roberta", "t5", "llama", "qwen2", "qwen3", "gemma3")

# What graphs are made of, and the tiny models with them.
INGREDIENTS = (
    *(f"capsules/{room}" for room in ("backbones", "executors", "packing", "variants")),
    *(f"capsules/{name}.py" for name in ("core", "functional", "injection")),
    "tests/support/models.py",
)


@dataclass(frozen=True, slots=True)
class Exported:
    """A tiny backbone in float32, and its graph."""

    backbone: Backbone
    graph: Path
    pad_id: int

    def executor(self) -> OnnxRuntimeExecutor:
        return OnnxRuntimeExecutor(self.backbone, self.graph, threads=1)


def recipe(name: str) -> str:
    """Changes with whatever may change the graph of a family's tiny model."""
    digest = hashlib.sha256(name.encode())
    for ingredient in INGREDIENTS:
        path = ROOT / ingredient
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(file.read_bytes())
    return digest.hexdigest()


@pytest.fixture(scope="session")
def exported() -> Callable[[str], Exported]:
    """Exports a family's backbone, or gives what was exported before."""
    made: dict[str, Exported] = {}
    cache = GraphCache(GRAPHS)

    def of(name: str) -> Exported:
        if name not in made:
            subject = subject_of(MODELS[name](exact=False))
            fingerprint = recipe(name)
            with FileLock(cache.lock_file(fingerprint, quantized=False)):
                if cache.find(fingerprint, quantized=False) is None:
                    with cache.making(fingerprint, quantized=False) as folder:
                        export(subject.backbone, folder)
            graph = cache.find(fingerprint, quantized=False)
            assert graph is not None
            made[name] = Exported(subject.backbone, graph, subject.pad_id)
        return made[name]

    return of


@pytest.fixture(scope="session", params=EXPORTED)
def graph(request: pytest.FixtureRequest, exported: Callable[[str], Exported]) -> Exported:
    return exported(request.param)
