"""Graphs of tiny backbones, each exported once a run."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from capsules.backbones.base import Backbone
from capsules.executors.onnx.export import export
from capsules.executors.onnx.graph import graph_file
from capsules.executors.onnx.runtime import OnnxRuntimeExecutor
from tests.support.families import subject_of
from tests.support.models import MODELS

# One of each family: what is read at the end, and how attention works, differ.
EXPORTED = ("bert", "t5", "gemma3")


@dataclass(frozen=True, slots=True)
class Exported:
    """A tiny backbone in float32, and its graph."""

    backbone: Backbone
    graph: Path
    pad_id: int

    def executor(self) -> OnnxRuntimeExecutor:
        return OnnxRuntimeExecutor(self.backbone, self.graph, threads=1)


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Exported]:
    """Exports a family's backbone, or gives what was exported before."""
    made: dict[str, Exported] = {}

    def of(name: str) -> Exported:
        if name not in made:
            subject = subject_of(MODELS[name](exact=False))
            folder = tmp_path_factory.mktemp(name)
            export(subject.backbone, folder)
            made[name] = Exported(
                subject.backbone, graph_file(folder, quantized=False), subject.pad_id
            )
        return made[name]

    return of


@pytest.fixture(scope="session", params=EXPORTED)
def graph(request: pytest.FixtureRequest, exported: Callable[[str], Exported]) -> Exported:
    return exported(request.param)
