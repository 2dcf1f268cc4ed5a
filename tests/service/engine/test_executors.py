"""Which executor a backbone gets, on a tiny backbone whose graph is exported once a machine."""

import asyncio
import copy
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from structlog.testing import capture_logs
from torch import Tensor

from capsules.backbones.base import LoadedBackbone
from capsules.backbones.load import load
from capsules.core import Reading, TokenBatch
from capsules.errors import OptionError
from capsules.executors.base import TOLERANCE
from capsules.executors.onnx import cache
from capsules.executors.onnx.cache import GraphCache
from capsules.executors.onnx.graph import GRAPH, graph_file
from capsules.executors.onnx.runtime import OnnxRuntimeExecutor
from capsules.executors.onnx.verify import QUANTIZED_FEATURE_TOLERANCE, difference
from capsules.injection import Prompts
from service.engine import executors
from service.engine.executors import (
    ExecutorConfig,
    GraphError,
    available_cores,
    first_line,
    last_line,
    obstacle_to_graphs,
    open_executor,
    open_graph,
    try_compiler,
)
from tests.support.backbones import tiny_bert, tiny_family
from tests.support.commands import GRAPHS
from tests.support.executors import RecordingExecutor

# An export takes ten seconds on an idle machine.
pytestmark = pytest.mark.timeout(300)

COPY = "import shutil, sys; shutil.copytree(sys.argv[1], sys.argv[2], dirs_exist_ok=True)"
SLOWLY = f"import time; time.sleep(0.3); {COPY}"
FAIL = "import sys; print('a long story', file=sys.stderr); sys.exit('the model is too odd')"
UNREADABLE = "import pathlib, sys; pathlib.Path(sys.argv[2], 'graph.onnx').write_text('none')"
HANG = """
import os, pathlib, sys, time
folder = pathlib.Path(sys.argv[2])
(folder / "graph.onnx.data").write_text("half")
(folder.parent / "pid").write_text(str(os.getpid()))
time.sleep(600)
"""


@dataclass(slots=True)
class Exporter:
    """Stands in for the process that exports: gives a graph that was exported before.

    Attributes:
        graph: the folder of that graph.
        script: what the process does; its arguments are that folder, and the one to write to.
        asked: for each export, of which backbone, and whether quantised.
    """

    graph: Path
    script: str = COPY
    asked: list[tuple[str, bool]] = field(default_factory=list)

    def __call__(
        self, backbone: str, fingerprint: str, folder: Path, *, quantize: bool
    ) -> list[str]:
        self.asked.append((backbone, quantize))
        return [sys.executable, "-c", self.script, str(self.graph), str(folder)]


def config_of(loaded: LoadedBackbone, graphs: Path, **changes: Any) -> ExecutorConfig:
    """One that finds no graphs but its own."""
    given = {"threads": 1, "shipped": graphs / "nothing-shipped", **changes}
    return ExecutorConfig(str(loaded.info.path), graphs, **given)


def exported(loaded: LoadedBackbone, **changes: Any) -> Path:
    """The folder of a backbone's graph, really exported, if only in an earlier run."""
    executor = asyncio.run(open_executor(loaded, config_of(loaded, GRAPHS, **changes)))
    assert executor.name.startswith("onnxruntime")
    quantized = executor.name.endswith("int8")
    return GraphCache(GRAPHS).place(loaded.info.fingerprint, quantized=quantized)


@pytest.fixture(scope="session")
def graph(loaded: LoadedBackbone) -> Path:
    return exported(loaded)


@pytest.fixture(scope="session")
def integers(loaded: LoadedBackbone) -> Path:
    return exported(loaded, quantization="int8")


@pytest.fixture(scope="session")
def deberta(tmp_path_factory: pytest.TempPathFactory) -> LoadedBackbone:
    return tiny_family(tmp_path_factory.mktemp("tiny-deberta"), "deberta-v2")


@pytest.fixture
def exporter(graph: Path, monkeypatch: pytest.MonkeyPatch) -> Exporter:
    made = Exporter(graph)
    monkeypatch.setattr(executors, "export_command", made)
    return made


@pytest.fixture
def graphs(tmp_path: Path) -> Path:
    return tmp_path / "graphs"


@pytest.fixture
def occupied(tmp_path: Path) -> Path:
    """A file where a folder should be."""
    path = tmp_path / "file"
    path.write_text("in the way")
    return path


def keep(loaded: LoadedBackbone, graph: Path, graphs: Path) -> Path:
    """Put a graph where a backbone's own would be; gives the file."""
    place = GraphCache(graphs).place(loaded.info.fingerprint, quantized=False)
    shutil.copytree(graph, place)
    return graph_file(place, quantized=False)


def left_in(folder: Path) -> set[str]:
    """The names in a folder, but for locks."""
    return {path.name for path in folder.glob("*") if path.suffix != ".lock"}


def only(logs: list[Any], event: str) -> dict[str, Any]:
    (line,) = [one for one in logs if one["event"] == event]
    found: dict[str, Any] = line
    return found


def events(logs: list[Any]) -> list[str]:
    return [line["event"] for line in logs]


class TestObstacles:
    @pytest.fixture
    def elsewhere(self, loaded: LoadedBackbone) -> LoadedBackbone:
        """On a device that is none of the machine's."""
        backbone = copy.deepcopy(loaded.backbone)
        backbone.move(torch.device("meta"))
        return replace(loaded, backbone=backbone)

    @pytest.fixture
    def half(self, loaded: LoadedBackbone) -> LoadedBackbone:
        return load(str(loaded.info.path), device="cpu", dtype="bfloat16")

    @pytest.mark.parametrize(
        ("kind", "changes", "reason"),
        [
            ("loaded", {"choice": "torch"}, "the executor is to be torch"),
            ("loaded", {"compile": True}, "layers are to be compiled, which torch does"),
            ("elsewhere", {}, "it runs on meta, and onnxruntime is for CPUs"),
            ("half", {}, "its weights are bfloat16, not float32"),
            ("deberta", {}, "the attention of deberta-v2 takes no packed rows"),
        ],
    )
    def test_each_is_told(
        self,
        kind: str,
        changes: dict[str, Any],
        reason: str,
        graphs: Path,
        request: pytest.FixtureRequest,
    ) -> None:
        backbone: LoadedBackbone = request.getfixturevalue(kind)
        assert obstacle_to_graphs(backbone, config_of(backbone, graphs, **changes)) == reason

    def test_there_may_be_none(self, loaded: LoadedBackbone, graphs: Path) -> None:
        for choice in ("auto", "onnxruntime"):
            assert obstacle_to_graphs(loaded, config_of(loaded, graphs, choice=choice)) is None

    @pytest.mark.parametrize("kind", ["elsewhere", "half", "deberta"])
    async def test_torch_takes_over_where_it_may(
        self, kind: str, graphs: Path, exporter: Exporter, request: pytest.FixtureRequest
    ) -> None:
        backbone: LoadedBackbone = request.getfixturevalue(kind)
        config = config_of(backbone, graphs)
        with capture_logs() as logs:
            executor = await open_executor(backbone, config)
        assert (executor.name, executor.tolerance) == ("torch", TOLERANCE)
        line = only(logs, "executor_passed_over")
        assert line["reason"] == obstacle_to_graphs(backbone, config)
        assert exporter.asked == []
        assert left_in(graphs) == set()

    @pytest.mark.parametrize("kind", ["elsewhere", "half", "deberta"])
    @pytest.mark.parametrize(
        ("changes", "name"),
        [({"choice": "onnxruntime"}, "executor"), ({"quantization": "int8"}, "quantization")],
    )
    async def test_what_was_asked_for_is_not_replaced(
        self,
        kind: str,
        changes: dict[str, Any],
        name: str,
        graphs: Path,
        exporter: Exporter,
        request: pytest.FixtureRequest,
    ) -> None:
        backbone: LoadedBackbone = request.getfixturevalue(kind)
        config = config_of(backbone, graphs, **changes)
        with pytest.raises(OptionError) as refused:
            await open_executor(backbone, config)
        assert refused.value.field == name
        assert str(obstacle_to_graphs(backbone, config)) in refused.value.message
        assert "CAPSULE_EXECUTOR to auto or torch" in refused.value.message
        assert "CAPSULE_QUANTIZATION to none" in refused.value.message
        assert exporter.asked == []

    async def test_torch_is_had_for_the_asking(
        self, loaded: LoadedBackbone, graphs: Path, exporter: Exporter
    ) -> None:
        with capture_logs() as logs:
            executor = await open_executor(loaded, config_of(loaded, graphs, choice="torch"))
        assert (executor.name, logs, exporter.asked) == ("torch", [], [])


class TestGraphs:
    async def test_the_first_start_exports_and_the_next_does_not(
        self, loaded: LoadedBackbone, graphs: Path, exporter: Exporter
    ) -> None:
        with capture_logs() as logs:
            first = await open_executor(loaded, config_of(loaded, graphs))
        assert events(logs) == [
            "graph_export_started",
            "graph_export_finished",
            "graph_verified",
        ]
        with capture_logs() as logs:
            second = await open_executor(loaded, config_of(loaded, graphs))
        assert events(logs) == ["graph_verified"]
        assert exporter.asked == [(str(loaded.info.path), False)]
        for executor in (first, second):
            assert (executor.name, executor.padding_free) == ("onnxruntime", True)
            assert executor.tolerance == TOLERANCE
            assert difference(loaded.backbone, executor, seed=5) < 1e-5

    async def test_a_graph_of_integers_is_one_of_its_own(
        self, loaded: LoadedBackbone, graph: Path, integers: Path, graphs: Path, exporter: Exporter
    ) -> None:
        exporter.graph = integers
        executor = await open_executor(loaded, config_of(loaded, graphs, quantization="int8"))
        assert executor.name == "onnxruntime-int8"
        assert executor.tolerance > TOLERANCE
        assert 1e-4 < difference(loaded.backbone, executor, seed=5) < QUANTIZED_FEATURE_TOLERANCE
        exporter.graph = graph
        assert (await open_executor(loaded, config_of(loaded, graphs))).name == "onnxruntime"
        assert [quantized for _, quantized in exporter.asked] == [True, False]

    async def test_the_threads_are_those_asked_for(
        self,
        loaded: LoadedBackbone,
        graphs: Path,
        exporter: Exporter,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        given: list[int] = []

        class Watched(OnnxRuntimeExecutor):
            def __init__(self, backbone: Any, path: Path, threads: int, **options: Any) -> None:
                given.append(threads)
                super().__init__(backbone, path, threads, **options)

        monkeypatch.setattr(executors, "OnnxRuntimeExecutor", Watched)
        await open_executor(loaded, config_of(loaded, graphs, threads=3))
        await open_executor(loaded, config_of(loaded, graphs, threads=None))
        assert given == [3, available_cores()]

    @pytest.mark.parametrize(
        ("name", "damage"),
        [
            ("graph.onnx", lambda path: path.write_bytes(path.read_bytes()[:2000])),
            ("graph.onnx", lambda path: path.write_bytes(b"")),
            ("graph.onnx.data", lambda path: path.write_bytes(path.read_bytes()[:2000])),
            ("graph.onnx.data", Path.unlink),
            (
                "graph.onnx.data",
                lambda path: path.write_bytes(bytes(len(path.read_bytes()))),
            ),
        ],
        ids=["truncated", "empty", "weights-truncated", "weights-lost", "weights-zeroed"],
    )
    async def test_a_damaged_graph_is_made_anew(
        self,
        name: str,
        damage: Callable[[Path], None],
        loaded: LoadedBackbone,
        graph: Path,
        graphs: Path,
        exporter: Exporter,
    ) -> None:
        path = keep(loaded, graph, graphs)
        damage(path.with_name(name))
        with capture_logs() as logs:
            executor = await open_executor(loaded, config_of(loaded, graphs))
        line = only(logs, "graph_discarded")
        assert (line["path"], line["log_level"]) == (str(path), "warning")
        assert "its graph" in line["reason"]
        assert len(exporter.asked) == 1
        assert executor.name == "onnxruntime"
        assert difference(loaded.backbone, executor) < 1e-5

    @pytest.mark.parametrize("kept", [False, True])
    async def test_a_graph_of_another_backbone_is_rejected(
        self, kept: bool, graph: Path, graphs: Path, exporter: Exporter, tmp_path: Path
    ) -> None:
        other = tiny_bert(tmp_path / "other", seed=1)
        if kept:
            keep(other, graph, graphs)
        with capture_logs() as logs:
            executor = await open_executor(other, config_of(other, graphs))
        assert executor.name == "torch"
        assert events(logs).count("graph_discarded") == kept
        line = only(logs, "executor_rejected")
        assert line["log_level"] == "warning"
        assert line["reason"].startswith("its graph differs from torch by ")
        assert line["reason"].endswith(", more than 0.0001")
        with pytest.raises(OptionError, match="its graph differs from torch") as refused:
            await open_executor(other, config_of(other, graphs, choice="onnxruntime"))
        assert refused.value.field == "executor"

    @pytest.mark.parametrize("quantization", ["none", "int8"])
    async def test_a_graph_that_is_wrong_as_it_was_made_is_not_made_again(
        self,
        quantization: str,
        graph: Path,
        integers: Path,
        graphs: Path,
        exporter: Exporter,
        tmp_path: Path,
    ) -> None:
        other = tiny_bert(tmp_path / "other", seed=1)
        exporter.graph = graph if quantization == "none" else integers
        config = config_of(other, graphs, choice="onnxruntime", quantization=quantization)
        told = []
        for _ in range(3):
            with capture_logs() as logs, pytest.raises(OptionError) as refused:
                await open_executor(other, config)
            assert refused.value.field == "executor"
            reason = only(logs, "executor_rejected")["reason"]
            assert reason in refused.value.message
            told.append((events(logs)[:-1], reason))
        assert len(exporter.asked) == 1
        (made, first), *later = told
        assert made == ["graph_export_started", "graph_export_finished"]
        assert first.startswith("its graph differs from torch by ")
        (note,) = left_in(graphs)
        again = (
            f"{first}, as was found when it was exported; remove {graphs / note} to have it "
            "exported again"
        )
        assert later == [([], again)] * 2

        (graphs / note).unlink()
        with pytest.raises(OptionError):
            await open_executor(other, config)
        assert len(exporter.asked) == 2

    async def test_a_graph_that_could_not_be_loaded_when_it_was_made_is_made_again(
        self, loaded: LoadedBackbone, graphs: Path, exporter: Exporter
    ) -> None:
        """It may have been for want of memory."""
        exporter.script = UNREADABLE
        for _ in range(2):
            assert (await open_executor(loaded, config_of(loaded, graphs))).name == "torch"
        assert len(exporter.asked) == 2

    async def test_a_graph_that_goes_before_it_was_checked_is_told(
        self,
        loaded: LoadedBackbone,
        graphs: Path,
        exporter: Exporter,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(GraphCache, "find", lambda *_, **__: None)
        with pytest.raises(GraphError, match="was removed from"):
            await open_graph(loaded, config_of(loaded, graphs))
        assert len(exporter.asked) == 1

    async def test_what_was_refused_is_of_one_backbone_and_of_these_versions(
        self,
        loaded: LoadedBackbone,
        graphs: Path,
        exporter: Exporter,
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
    ) -> None:
        other = tiny_bert(tmp_path / "other", seed=1)
        config = config_of(other, graphs)
        assert (await open_executor(other, config)).name == "torch"
        assert (await open_executor(loaded, config_of(loaded, graphs))).name == "onnxruntime"
        assert len(exporter.asked) == 2
        monkeypatch.setattr(cache, "version", lambda name: "99.0")
        assert (await open_executor(other, config)).name == "torch"
        assert len(exporter.asked) == 3

    async def test_servers_that_wait_for_an_export_learn_that_it_was_refused(
        self, graphs: Path, exporter: Exporter, tmp_path: Path
    ) -> None:
        other = tiny_bert(tmp_path / "other", seed=1)
        exporter.script = SLOWLY
        opened = [open_executor(other, config_of(other, graphs)) for _ in range(3)]
        assert [executor.name for executor in await asyncio.gather(*opened)] == ["torch"] * 3
        assert len(exporter.asked) == 1

    async def test_where_a_refusal_cannot_be_kept_the_reason_is_told_all_the_same(
        self, graphs: Path, exporter: Exporter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other = tiny_bert(tmp_path / "other", seed=1)
        monkeypatch.setattr(GraphCache, "refusal_file", lambda *_, **__: graphs / "no" / "note")
        with pytest.raises(GraphError, match="its graph differs from torch"):
            await open_graph(other, config_of(other, graphs))

    async def test_a_graph_that_cannot_be_made_leaves_nothing(
        self, loaded: LoadedBackbone, graphs: Path, exporter: Exporter
    ) -> None:
        exporter.script = FAIL
        with capture_logs() as logs:
            executor = await open_executor(loaded, config_of(loaded, graphs))
        assert executor.name == "torch"
        reason = only(logs, "executor_rejected")["reason"]
        assert reason == "its graph could not be exported (the model is too odd)"
        assert left_in(graphs) == set()
        with pytest.raises(OptionError, match="the model is too odd"):
            await open_executor(loaded, config_of(loaded, graphs, choice="onnxruntime"))

    async def test_a_backbone_that_is_gone_meanwhile_is_told(
        self, loaded: LoadedBackbone, graphs: Path
    ) -> None:
        config = replace(config_of(loaded, graphs), backbone=str(graphs / "nowhere"))
        with pytest.raises(GraphError, match=r"BackboneError: .*nowhere"):
            await open_graph(loaded, config)

    async def test_a_folder_that_cannot_be_written_to_is_told(
        self, loaded: LoadedBackbone, occupied: Path, exporter: Exporter
    ) -> None:
        graphs = occupied / "graphs"
        with capture_logs() as logs:
            executor = await open_executor(loaded, config_of(loaded, graphs))
        assert executor.name == "torch"
        reason = only(logs, "executor_rejected")["reason"]
        assert f"graphs cannot be kept in {graphs}" in reason
        assert "CAPSULE_GRAPH_DIR" in reason

    async def test_a_graph_is_used_where_nothing_can_be_written(
        self,
        loaded: LoadedBackbone,
        graph: Path,
        graphs: Path,
        exporter: Exporter,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        def locked(path: Path) -> None:
            raise OSError(30, "Read-only file system", str(path))

        keep(loaded, graph, graphs)
        monkeypatch.setattr(executors, "AsyncFileLock", locked)
        assert (await open_executor(loaded, config_of(loaded, graphs))).name == "onnxruntime"
        assert exporter.asked == []

    async def test_a_graph_that_came_with_the_installation_is_used(
        self, loaded: LoadedBackbone, graph: Path, graphs: Path, exporter: Exporter, tmp_path: Path
    ) -> None:
        path = keep(loaded, graph, tmp_path / "shipped")
        config = config_of(loaded, graphs, shipped=tmp_path / "shipped")
        assert (await open_executor(loaded, config)).name == "onnxruntime"
        assert exporter.asked == []
        assert left_in(graphs) == set()
        path.write_bytes(b"decayed")
        with capture_logs() as logs:
            assert (await open_executor(loaded, config)).name == "onnxruntime"
        assert only(logs, "graph_discarded")["path"] == str(path)
        assert len(exporter.asked) == 1
        assert path.exists()

    async def test_two_servers_that_start_at_once_export_once(
        self, loaded: LoadedBackbone, graphs: Path, exporter: Exporter
    ) -> None:
        exporter.script = SLOWLY
        opened = [open_executor(loaded, config_of(loaded, graphs)) for _ in range(3)]
        assert [executor.name for executor in await asyncio.gather(*opened)] == ["onnxruntime"] * 3
        assert len(exporter.asked) == 1

    async def test_a_start_that_is_given_up_ends_the_export(
        self, loaded: LoadedBackbone, graphs: Path, exporter: Exporter
    ) -> None:
        exporter.script = HANG
        task = asyncio.create_task(open_executor(loaded, config_of(loaded, graphs)))
        note = graphs / "pid"
        async with asyncio.timeout(20):
            while not note.exists() or not note.read_text():  # noqa: ASYNC110 - another process's
                await asyncio.sleep(0.01)
        process = int(note.read_text())
        os.kill(process, 0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)
        assert left_in(graphs) == {"pid"}
        exporter.script = COPY
        assert (await open_executor(loaded, config_of(loaded, graphs))).name == "onnxruntime"

    async def test_what_a_killed_server_left_is_removed(
        self, loaded: LoadedBackbone, graphs: Path, exporter: Exporter
    ) -> None:
        place = GraphCache(graphs).place(loaded.info.fingerprint, quantized=False)
        left, other = graphs / f".{place.name}-left", graphs / ".another-left"
        for folder in (left, other):
            folder.mkdir(parents=True)
            (folder / GRAPH).write_text("half")
        assert (await open_executor(loaded, config_of(loaded, graphs))).name == "onnxruntime"
        assert not left.exists()
        assert other.exists()


class Uncompilable(RecordingExecutor):
    """Has no compiler."""

    def features(
        self, tokens: TokenBatch, prompts: Prompts, reading: Reading | None = None
    ) -> Tensor:
        raise RuntimeError("InvalidCxxCompiler: No working C++ compiler found\n\nand a traceback")


def test_a_compiler_that_is_missing_is_told_at_the_start(loaded: LoadedBackbone) -> None:
    with pytest.raises(OptionError) as refused:
        try_compiler(loaded, Uncompilable(loaded.info.hidden_size))
    assert refused.value.field == "compile"
    assert refused.value.message == (
        "The layers cannot be compiled here (InvalidCxxCompiler: No working C++ compiler found). "
        "Install a C++ compiler such as g++, or set CAPSULE_COMPILE to false."
    )


def test_the_compiler_is_tried_with_a_small_batch(loaded: LoadedBackbone) -> None:
    executor = RecordingExecutor(loaded.info.hidden_size)
    try_compiler(loaded, executor)
    assert [len(batch) for batch in executor.batches] == [2]


def test_of_a_failure_the_line_that_says_why_is_told() -> None:
    assert last_line(b"Traceback\n  File\nValueError: why\n\n") == "ValueError: why"
    assert last_line(b"") == ""
    assert last_line(b"\xff" * 1000) == "�" * 500
    assert first_line("\nwhy\nwhere\n") == "why"
