import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
import pytest
import torch

from capsules.backbones.base import LoadedBackbone
from capsules.executors.onnx.examples import example
from capsules.executors.onnx.export import dynamic_axes, export, main, quantize_graph
from capsules.executors.onnx.graph import FEATURES, QUANTIZED, export_command, graph_file
from capsules.executors.onnx.runtime import OnnxRuntimeExecutor
from capsules.executors.onnx.verify import difference
from tests.capsules.executors.onnx.conftest import Exported

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def restored_logging() -> Iterator[None]:
    """The command silences the libraries of its own process, which here is ours."""
    before = logging.root.manager.disable
    yield
    logging.disable(before)


def test_the_graph_is_a_file_and_its_weights(exported: Callable[[str], Exported]) -> None:
    one = exported("bert")
    assert {path.name for path in one.graph.parent.iterdir()} == {"graph.onnx", "graph.onnx.data"}
    onnx.checker.check_model(one.graph)
    graph = onnx.load(one.graph, load_external_data=False).graph
    assert [output.name for output in graph.output] == [FEATURES]


def test_an_export_leaves_the_backbone_as_it_was(exported: Callable[[str], Exported]) -> None:
    """It answers as before, rows that are not packed included."""
    one = exported("bert")
    assert difference(one.backbone, one.executor()) < 1e-5
    assert not any(parameter.requires_grad for parameter in one.backbone.model.parameters())


def test_a_quantised_graph_takes_the_place_of_its_source(
    exported: Callable[[str], Exported], tmp_path: Path
) -> None:
    one = exported("bert")
    for path in one.graph.parent.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    quantize_graph(tmp_path / one.graph.name, tmp_path / QUANTIZED)
    assert {path.name.removesuffix(".data") for path in tmp_path.iterdir()} == {QUANTIZED}
    kinds = {node.op_type for node in onnx.load(tmp_path / QUANTIZED).graph.node}
    assert "MatMulInteger" in kinds
    executor = OnnxRuntimeExecutor(one.backbone, tmp_path / QUANTIZED, threads=1, quantized=True)
    assert executor.name == "onnxruntime-int8"
    # More than rounding of floats, less than what a wrong graph gives.
    assert 1e-4 < difference(one.backbone, executor) < 0.2


def test_an_axis_varies_where_the_two_examples_differ() -> None:
    feed = {"a": torch.zeros(3, 4).numpy(), "b": torch.zeros(2).numpy()}
    other = {"a": torch.zeros(3, 5).numpy(), "b": torch.zeros(2).numpy()}
    axes = dynamic_axes(feed, other)
    assert {name: set(found) for name, found in axes.items()} == {"a": {1}, "b": set()}


def test_an_example_has_every_variant_and_a_row_without_a_capsule(tiny: LoadedBackbone) -> None:
    for shift in (0, 1):
        tokens, prompts, reading = example(tiny.backbone, (3, 5), shift=shift, seed=0)
        assert len({group.variant.name for group in prompts.groups}) == len(prompts.groups) > 3
        rows = torch.cat([group.rows for group in prompts.groups if group.rows is not None])
        assert sorted(rows.tolist()) == list(range(len(tokens) - 1))
        assert set(tokens.attention_mask.sum(1).tolist()) == {3, 5}
        assert reading is None


def test_only_the_backbone_that_was_meant_is_exported(
    tiny: LoadedBackbone,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    restored_logging: None,
) -> None:
    command = export_command(str(tiny.info.path), "f" * 64, tmp_path, quantize=False)
    module = command.index("capsules.executors.onnx.export")
    with pytest.raises(SystemExit) as ended:
        main(command[module + 1 :])
    assert ended.value.code == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert said.endswith(f"has the fingerprint {tiny.info.fingerprint} now; start again")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("quantize", [False, True])
def test_the_command_writes_the_graph(
    quantize: bool,
    tiny: LoadedBackbone,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    restored_logging: None,
) -> None:
    asked: list[tuple[str, bool]] = []

    def written(backbone: object, folder: Path, *, quantize: bool) -> None:
        asked.append((type(backbone).__name__, quantize))
        model = onnx.helper.make_model(onnx.helper.make_graph([], "empty", [], []))
        onnx.save(model, graph_file(folder, quantized=quantize))

    monkeypatch.setattr(f"{export.__module__}.export", written)
    command = export_command(
        str(tiny.info.path), tiny.info.fingerprint, tmp_path, quantize=quantize
    )
    main(command[command.index("capsules.executors.onnx.export") + 1 :])
    assert asked == [(type(tiny.backbone).__name__, quantize)]
