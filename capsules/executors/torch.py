"""The reference executor: eager PyTorch on CPU or CUDA."""

from typing import ClassVar

import torch
from torch import Tensor

from capsules.backbones.base import Backbone
from capsules.core import Reading, TokenBatch
from capsules.executors.base import Executor, Pass
from capsules.injection import Prompts
from capsules.model import InjectedBackbone


class TorchExecutor(Executor):
    """Runs an :class:`InjectedBackbone` in inference mode."""

    padding_free: ClassVar[bool] = False

    def __init__(self, backbone: Backbone, *, compile_layers: bool = False) -> None:
        """Wrap a backbone.

        Args:
            backbone: to run.
            compile_layers: have torch compile its layers, when they are first run; on a CPU that
                takes a C++ compiler.
        """
        self.name = "torch-compiled" if compile_layers else "torch"
        self.model = InjectedBackbone(backbone)
        if compile_layers:
            for layer in backbone.layers:
                layer.compile(dynamic=True)

    @property
    def device(self) -> torch.device:
        """The backbone's device."""
        return self.model.backbone.device

    def prepare(
        self,
        tokens: TokenBatch,
        prompts: Prompts,
        reading: Reading | None = None,
        *,
        alone: bool = True,
    ) -> Pass:
        """See :class:`capsules.executors.base.Executor`; tokens start on their way to the device."""
        tokens = tokens.to(self.device)
        reading = None if reading is None else reading.to(self.device)

        @torch.inference_mode()
        def run() -> Tensor:
            return self.model.features(tokens, prompts, reading)

        return run
