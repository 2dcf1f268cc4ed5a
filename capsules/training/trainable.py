"""The few tensors that are learned, as a module."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from capsules.backbones.base import BackboneInfo
from capsules.core import TokenBatch
from capsules.injection import Prompts
from capsules.model import InjectedBackbone, shared_prompts
from capsules.variants.base import Variant

HEAD_DEVIATION = 0.02


class Trainable(nn.Module):
    """A variant's tensors and a head; with no variant, the head alone.

    Attributes:
        tensors: by their name in the capsule file, with dots as underscores while training.
    """

    def __init__(
        self,
        info: BackboneInfo,
        variant: Variant | None,
        *,
        length: int,
        labels: int,
        seed: int,
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        start: dict[str, Tensor] = {}
        if variant is not None:
            start |= variant.initial(info.geometry, info.num_layers, length, generator)
        start["head.weight"] = (
            torch.randn(labels, info.hidden_size, generator=generator) * HEAD_DEVIATION
        )
        if info.family == "encoder-only":
            start["head.bias"] = torch.zeros(labels)
        self.variant = variant
        self.slots = 0 if variant is None else variant.slots(length)
        self.names = tuple(start)
        self.learned = nn.ParameterDict(
            {name.replace(".", "_"): nn.Parameter(value) for name, value in start.items()}
        )

    def named(self) -> dict[str, Tensor]:
        """The learned tensors by their name in the capsule file."""
        return {name: self.learned[name.replace(".", "_")] for name in self.names}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Set every learned tensor from a mapping as :meth:`named` gives."""
        with torch.no_grad():
            for name, parameter in self.named().items():
                parameter.copy_(tensors[name])

    def snapshot(self) -> dict[str, Tensor]:
        """Copies of the learned tensors, on the CPU."""
        return {name: value.detach().cpu().clone() for name, value in self.named().items()}

    def prompts(self, rows: int) -> Prompts:
        """The same capsule for every one of `rows` rows."""
        if self.variant is None:
            return Prompts()
        return shared_prompts(self.variant, self.slots, self.named(), rows)

    def logits(self, features: Tensor) -> Tensor:
        """[B, L] scores of features [B, D]."""
        tensors = self.named()
        return functional.linear(features, tensors["head.weight"], tensors.get("head.bias"))

    def forward(self, model: InjectedBackbone, tokens: TokenBatch) -> Tensor:
        """[B, L] scores of a batch."""
        return self.logits(model.features(tokens, self.prompts(len(tokens))))
