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

QUANTIZED_PROBABILITY_TOLERANCE = 0.35
"""How far 8-bit integers may move a probability, see docs/decisions/0014-executors.md."""

SHARED_BYTES = 1024**3
"""Largest graph that is loaded twice: to run on one core, many at a time, and on all of them."""

SLOWER_FUSED = ("SkipLayerNormFusion", "BiasGeluFusion")
"""Operators that onnxruntime 1.32 runs faster one by one: fused, a norm takes five times as long."""

SEVERE = 3
"""onnxruntime's level of logging that leaves out warnings."""


class OnnxRuntimeExecutor(Executor):
    """Runs the graph of a backbone.

    Small batches on one core each are faster than one large batch on all cores: there is nothing to
    wait for at the end of every operator, and no core reads what another has just written. Only a
    single batch that has all cores to itself is faster on all of them.
    """

    padding_free: ClassVar[bool] = True

    def __init__(
        self, backbone: Backbone, graph: Path, threads: int, *, quantized: bool = False
    ) -> None:
        """Load a graph.

        Args:
            backbone: whose graph it is.
            graph: the file.
            threads: cores to use: as many passes at a time with one each, or one with all.
            quantized: whether its weights are 8-bit integers.

        Raises:
            RuntimeError: onnxruntime cannot load it.
        """
        self.name = "onnxruntime-int8" if quantized else "onnxruntime"
        if quantized:
            self.tolerance = QUANTIZED_PROBABILITY_TOLERANCE
        self.packer = Packer(backbone)
        options = [session_options(1)]
        if threads > 1 and graph_bytes(graph) <= SHARED_BYTES:
            options.append(session_options(threads))
            self.lanes = threads
        elif threads > 1:
            options = [session_options(threads)]
        sessions = [
            onnxruntime.InferenceSession(
                graph,
                one,
                providers=["CPUExecutionProvider"],
                disabled_optimizers=list(SLOWER_FUSED),
            )
            for one in options
        ]
        self.narrow, self.wide = sessions[0], sessions[-1]

    @property
    def device(self) -> torch.device:
        """The CPU."""
        return torch.device("cpu")

    def prepare(
        self,
        tokens: TokenBatch,
        prompts: Prompts,
        reading: Reading | None = None,
        *,
        alone: bool = True,
    ) -> Pass:
        """Pack a batch, see :class:`capsules.executors.base.Executor`."""
        session = self.wide if alone else self.narrow
        feed = graph_feed(self.packer.pack(tokens, prompts, reading))

        def run() -> Tensor:
            (features,) = session.run([FEATURES], feed)
            assert isinstance(features, np.ndarray), "the features are one tensor"
            return torch.from_numpy(features)

        return run


def graph_bytes(graph: Path) -> int:
    """Size of a graph and its weights."""
    return sum(path.stat().st_size for path in graph.parent.glob(f"{graph.name}*"))


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
    # The softmax leaves some where a place is masked, and each costs a hundred ordinary numbers.
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    # Threads that spin between passes take the cores from those that read and answer requests.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return options
