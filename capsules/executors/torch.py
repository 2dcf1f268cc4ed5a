"""The reference executor: eager PyTorch on CPU or CUDA."""

from typing import ClassVar

import torch
from torch import Tensor

from capsules.backbones.base import Backbone
from capsules.core import Reading, TokenBatch
from capsules.injection import Prompts
from capsules.model import InjectedBackbone


class TorchExecutor:
    """Runs an :class:`InjectedBackbone` in inference mode."""

    name: ClassVar[str] = "torch"

    def __init__(self, backbone: Backbone) -> None:
        self.model = InjectedBackbone(backbone)

    @property
    def device(self) -> torch.device:
        """The backbone's device."""
        return self.model.backbone.device

    @torch.inference_mode()
    def features(
        self, tokens: TokenBatch, prompts: Prompts, reading: Reading | None = None
    ) -> Tensor:
        """See :class:`capsules.executors.base.Executor`."""
        return self.model.features(
            tokens.to(self.device), prompts, None if reading is None else reading.to(self.device)
        )
