"""Writes the packed pass of a backbone as an ONNX graph.

`python -m capsules.executors.onnx.export` does it in a process of its own, which takes the memory of
the exporter with it.
"""

import argparse
import logging
import sys
import warnings
from pathlib import Path

import onnx
import onnx_ir
import torch
from onnxruntime.quantization import QuantType, quantize_dynamic
from torch import Tensor

from capsules.backbones.attention import packing
from capsules.backbones.base import Backbone
from capsules.backbones.load import load
from capsules.executors.onnx.examples import example
from capsules.executors.onnx.graph import FEATURES, GRAPH, QUANTIZED, graph_inputs
from capsules.packing.feed import Packer
from capsules.packing.graph import PackedGraph
from capsules.packing.plan import Feed

OPSET = 23
"""The first with an operator for attention."""

LENGTHS = (3, 17, 9)
LONGER = (41, 5, 23, 33)
"""Lengths of texts in the two examples; the longest is beyond the least width of a bin."""


def attend(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor, heads: int, groups: int, scale: float
) -> Tensor:
    """Attention in one operator, see :func:`capsules.backbones.attention.attend_densely`."""
    # It wants the bias of every head, or of one for all.
    mixed: Tensor = torch.onnx.ops.attention(
        query, key, value, bias, q_num_heads=heads, kv_num_heads=groups, scale=float(scale)
    )[0]
    return mixed


def export(backbone: Backbone, folder: Path, *, quantize: bool = False) -> None:
    """Write the graph of a backbone.

    Args:
        backbone: in float32, on the CPU; nothing else may run it meanwhile.
        folder: to write into, which exists.
        quantize: write it with the weights of matrix products as 8-bit integers.
    """
    packer = Packer(backbone)
    feed, other = (
        packer.pack(*batch)
        for batch in (
            example(backbone, LONGER, shift=1, seed=1),
            example(backbone, LENGTHS, shift=0, seed=2),
        )
    )
    with (
        warnings.catch_warnings(action="ignore"),  # they are for those who write models
        torch.inference_mode(False),
        torch.no_grad(),
        packing(backbone.model),
    ):
        program = torch.export.export(
            PackedGraph(backbone, attend).eval(),
            (tensors(feed),),
            dynamic_shapes=(dynamic_axes(feed, other),),
            strict=False,
        )
        graph = torch.onnx.export(
            program,
            (),
            dynamo=True,
            input_names=graph_inputs(feed),
            output_names=[FEATURES],
            opset_version=OPSET,
            verbose=False,
        )
    assert graph is not None, "the dynamo exporter gives a program"
    path = folder / GRAPH
    graph.save(path, external_data=True)
    if quantize:
        quantize_graph(path, folder / QUANTIZED)


def quantize_graph(source: Path, target: Path) -> None:
    """Write a graph with the weights of its matrix products as 8-bit integers, a scale a column.

    Activations stay float32, and are rounded as they come.

    Args:
        source: the graph; it and its weights are removed.
        target: what is written, along with its weights.
    """
    quantize_dynamic(
        source,
        target,
        op_types_to_quantize=["MatMul"],
        per_channel=True,
        weight_type=QuantType.QInt8,
        use_external_data_format=True,
        extra_options={"MatMulConstBOnly": True},
    )
    for path in source.parent.glob(f"{source.name}*"):
        path.unlink()
    # The quantiser sorts nodes without a look into branches, which use what is outside them.
    model = onnx_ir.load(target)
    model.graph.sort()
    onnx_ir.save(model, target)


def tensors(feed: Feed) -> dict[str, Tensor]:
    """A feed as tensors."""
    return {name: torch.tensor(value) for name, value in feed.items()}


def dynamic_axes(feed: Feed, other: Feed) -> dict[str, dict[int, object]]:
    """Which axes of the inputs vary: those in which two batches that have nothing in common differ."""
    return {
        name: {
            axis: torch.export.Dim.DYNAMIC
            for axis, size in enumerate(value.shape)
            if size != other[name].shape[axis]
        }
        for name, value in feed.items()
    }


def main(arguments: list[str]) -> None:
    """Load a backbone and write its graph."""
    parser = argparse.ArgumentParser(prog="python -m capsules.executors.onnx.export")
    parser.add_argument("backbone", help="`embedded`, a local folder or file, or a hub id")
    parser.add_argument("folder", type=Path, help="where to write, a folder that exists")
    parser.add_argument("--quantize", action="store_true", help="weights as 8-bit integers")
    parser.add_argument("--fingerprint", required=True, help="what the backbone has to be")
    options = parser.parse_args(arguments)
    logging.disable(logging.WARNING)
    loaded = load(options.backbone, device="cpu", dtype="float32")
    if loaded.info.fingerprint != options.fingerprint:
        parser.error(
            f"{options.backbone} has the fingerprint {loaded.info.fingerprint} now; start again"
        )
    export(loaded.backbone, options.folder, quantize=options.quantize)
    onnx.checker.check_model(next(options.folder.glob("*.onnx")))


if __name__ == "__main__":
    main(sys.argv[1:])
