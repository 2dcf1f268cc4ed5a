from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import onnx
import pytest
import torch

from capsules.core import Reading
from capsules.executors.base import Executor
from capsules.executors.onnx.graph import graph_inputs
from capsules.executors.onnx.runtime import OnnxRuntimeExecutor
from capsules.executors.onnx.verify import difference
from capsules.executors.torch import TorchExecutor
from capsules.injection import Prompts
from capsules.packing.feed import Packer
from tests.capsules.executors.onnx.conftest import Exported
from tests.support.batches import addition_prompts, mixed_rows, row_prompts, token_batch
from tests.support.texts import text

TOLERANCE = 1e-5


def test_it_is_an_executor_without_padding_on_the_cpu(exported: Callable[[str], Exported]) -> None:
    named: Executor = exported("bert").executor()
    assert (named.name, named.padding_free, named.device.type) == ("onnxruntime", True, "cpu")


def test_it_answers_as_torch_does_to_every_variant(graph: Exported) -> None:
    assert difference(graph.backbone, graph.executor(), seed=11) < TOLERANCE


@pytest.mark.parametrize("left", [False, True])
def test_a_row_is_the_same_alone_and_among_others(graph: Exported, left: bool) -> None:
    backbone, executor = graph.backbone, graph.executor()
    rows = mixed_rows(len(backbone.layers), backbone.hidden_size)
    together = executor.features(
        token_batch([ids for ids, _ in rows], graph.pad_id, left=left, width=12),
        row_prompts([one for _, one in rows], dtype=torch.float32),
    )
    for row, (ids, capsule) in enumerate(rows):
        tokens = token_batch([ids], graph.pad_id)
        prompts = row_prompts([capsule], dtype=torch.float32)
        alone = executor.features(tokens, prompts)[0]
        expected = TorchExecutor(backbone).features(tokens, prompts)[0]
        assert float((together[row] - alone).abs().max()) < TOLERANCE, row
        assert float((alone - expected).abs().max()) < TOLERANCE, row


def test_rows_need_no_capsules(graph: Exported) -> None:
    tokens = token_batch([text(3, 1), text(36, 2)], graph.pad_id)
    got = graph.executor().features(tokens, Prompts())
    expected = TorchExecutor(graph.backbone).features(tokens, Prompts())
    assert float((got - expected).abs().max()) < TOLERANCE


def test_words_are_read_where_they_part(exported: Callable[[str], Exported]) -> None:
    one = exported("t5")
    tokens = token_batch([text(4, 1), text(7, 2)], one.pad_id)
    p = torch.randn(len(one.backbone.layers), 1, one.backbone.hidden_size)
    reading = Reading(
        rows=torch.tensor([0, 1, 1]),
        prefixes=torch.tensor([[5, 6], [5, 9], [8, 0]]),
        paths=torch.tensor([0, 1, 0, 2]),
        steps=torch.tensor([0, 2, 1, 1]),
    )
    got = one.executor().features(tokens, addition_prompts([p, None]), reading)
    expected = TorchExecutor(one.backbone).features(tokens, addition_prompts([p, None]), reading)
    assert got.shape == (4, one.backbone.hidden_size)
    assert float((got - expected).abs().max()) < TOLERANCE


def test_a_pass_can_be_prepared_while_another_waits(exported: Callable[[str], Exported]) -> None:
    one = exported("bert")
    executor = one.executor()
    texts = ([7, 8, 9], [20, 21])
    first, second = (executor.prepare(token_batch([ids], one.pad_id), Prompts()) for ids in texts)
    expected = [
        TorchExecutor(one.backbone).features(token_batch([ids], one.pad_id), Prompts())
        for ids in texts
    ]
    for got, wanted in zip((first(), second()), expected, strict=True):
        assert float((got - wanted).abs().max()) < TOLERANCE


def test_only_sizes_of_the_backbone_are_fixed_in_a_graph(graph: Exported) -> None:
    """Every other axis may have any size, which no single batch could show."""
    inputs = {one.name: one for one in onnx.load(graph.graph, load_external_data=False).graph.input}
    fixed = {
        name: tuple(
            axis
            for axis, size in enumerate(one.type.tensor_type.shape.dim)
            if not size.HasField("dim_param")
        )
        for name, one in inputs.items()
    }
    of_layers = {"vectors": (0, 2), "pool_of": (0,), "bias_of": (0,), "taps": (0, 2, 3)}
    of_maps = {"down": (0, 2, 3), "up": (0, 2, 3)}
    of_one_sequence = {"ids": (0,), "text_places": (0,), "places": (0,), "bias": (2,)}
    known = {**of_layers, **of_maps, **of_one_sequence}
    names = Packer(graph.backbone).pack(token_batch([[7, 8]], graph.pad_id), Prompts())
    assert set(inputs) == set(graph_inputs(names))
    assert fixed == {f"feed_{name}": known.get(name, ()) for name in names}


def test_a_graph_of_other_weights_is_told(exported: Callable[[str], Exported]) -> None:
    one = exported("bert")
    weight = one.backbone.layers[1].get_parameter("output.dense.weight")
    kept = weight.detach().clone()
    with torch.no_grad():
        weight[3, 5] += 1.0
        try:
            assert difference(one.backbone, one.executor()) > 1e-3
        finally:
            weight.copy_(kept)
    assert difference(one.backbone, one.executor()) < TOLERANCE


def test_with_cores_it_has_as_many_lanes_and_the_same_answers(
    exported: Callable[[str], Exported],
) -> None:
    one = exported("bert")
    executor = OnnxRuntimeExecutor(one.backbone, one.graph, threads=2)
    assert (executor.lanes, one.executor().lanes) == (2, 1)
    batches = [token_batch([text(size, size)], one.pad_id) for size in (3, 9)]
    with ThreadPoolExecutor(2) as pool:
        passes = [executor.prepare(tokens, Prompts(), alone=False) for tokens in batches]
        together = [future.result() for future in [pool.submit(run) for run in passes]]
    for tokens, got in zip(batches, together, strict=True):
        expected = TorchExecutor(one.backbone).features(tokens, Prompts())
        assert float((got - expected).abs().max()) < TOLERANCE
        assert float((executor.features(tokens, Prompts()) - expected).abs().max()) < TOLERANCE
