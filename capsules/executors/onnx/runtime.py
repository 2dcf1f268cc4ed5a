"""The executor for CPUs: onnxruntime on a packed batch, which has no padding."""

from pathlib import Path
from typing import ClassVar

import numpy as np
import onnxruntime
import torch
from torch import Tensor

from capsules.backbones.base import Backbone
from capsules.core import Reading, TokenBatch
from capsules.executors.base import Executor, Pass
from capsules.executors.onnx.graph import FEATURES, graph_feed
from capsules.injection import Prompts
from capsules.packing.feed import Packer

QUANTIZED_TOLERANCE = 0.35
"""How far 8-bit integers may move a probability, see docs/decisions/0014-executors.md."""

SEVERE = 3
"""onnxruntime's level of logging that leaves out warnings."""


class OnnxRuntimeExecutor(Executor):
    """Runs the graph of a backbone."""

    padding_free: ClassVar[bool] = True

    def __init__(
        self, backbone: Backbone, graph: Path, threads: int, *, quantized: bool = False
    ) -> None:
        """Load a graph.

        Args:
            backbone: whose graph it is.
            graph: the file.
            threads: of one pass; there are no others, and they idle between passes.
            quantized: whether its weights are 8-bit integers.

        Raises:
            RuntimeError: onnxruntime cannot load it.
        """
        self.name = "onnxruntime-int8" if quantized else "onnxruntime"
        if quantized:
            self.tolerance = QUANTIZED_TOLERANCE
        self.packer = Packer(backbone)
        self.session = onnxruntime.InferenceSession(
            graph, session_options(threads), providers=["CPUExecutionProvider"]
        )

    @property
    def device(self) -> torch.device:
        """The CPU."""
        return torch.device("cpu")

    def prepare(self, tokens: TokenBatch, prompts: Prompts, reading: Reading | None = None) -> Pass:
        """Pack a batch, see :class:`capsules.executors.base.Executor`."""
        feed = graph_feed(self.packer.pack(tokens, prompts, reading))

        def run() -> Tensor:
            (features,) = self.session.run([FEATURES], feed)
            assert isinstance(features, np.ndarray), "the features are one tensor"
            return torch.from_numpy(features)

        return run


def session_options(threads: int) -> onnxruntime.SessionOptions:
    """How graphs are run here.

    Args:
        threads: of one pass.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # It would keep a plan of memory for every shape that ever came by.
    options.enable_mem_pattern = False
    options.log_severity_level = SEVERE
    # Threads that spin between passes take the cores from those that read and answer requests.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return options
