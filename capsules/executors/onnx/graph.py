"""What a graph's file and its inputs are called, and who writes it; needs no exporter."""

import sys
from collections.abc import Iterable
from pathlib import Path

from capsules.packing.plan import Feed

GRAPH = "graph.onnx"
QUANTIZED = "graph.int8.onnx"
FEATURES = "features"

INPUT = "feed_"
"""Before the names of inputs, so that no value inside the graph has the same."""


def graph_file(folder: Path, *, quantized: bool) -> Path:
    """The graph in a folder."""
    return folder / (QUANTIZED if quantized else GRAPH)


def graph_inputs(names: Iterable[str]) -> list[str]:
    """What the inputs of a feed are called in the graph."""
    return [INPUT + name for name in names]


def graph_feed(feed: Feed) -> Feed:
    """A feed under the names of the graph."""
    return {INPUT + name: value for name, value in feed.items()}


def export_command(backbone: str, fingerprint: str, folder: Path, *, quantize: bool) -> list[str]:
    """The command that writes a graph, in a process that takes the exporter's memory with it.

    Args:
        backbone: as it was loaded: `embedded`, a local folder or file, or a hub id.
        fingerprint: what it has to be.
        folder: to write into, which exists.
        quantize: write it with the weights of matrix products as 8-bit integers.
    """
    command = [
        # Without the present folder, from which Python would import whatever is there.
        *(sys.executable, "-P", "-m", "capsules.executors.onnx.export"),
        *(backbone, str(folder), "--fingerprint", fingerprint),
    ]
    return [*command, "--quantize"] if quantize else command
