"""How a text and its capsule attend to each other, layer by layer and head by head."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from capsules.artefact.file import Capsule
from capsules.backbones.base import Backbone, LoadedBackbone
from capsules.evaluation.runner import encode
from capsules.model import InjectedBackbone, pad, shared_prompts
from capsules.variants.registry import variant


@dataclass(frozen=True, slots=True)
class AttentionMap:
    """Attention of one text's forward pass.

    Attributes:
        names: of the K + T positions: `capsule`, or `capsule 1` and so on, then the tokens.
        slots: K, the capsule's positions, which come first.
        weights: [N, heads, K + T, K + T]; ``weights[i, h, q, k]`` is how much position q attends to
            position k in head h of layer i + 1. Each row adds up to one.
    """

    names: tuple[str, ...]
    slots: int
    weights: Tensor

    @property
    def to_capsule(self) -> Tensor:
        """[N, heads, T] how much each token attends to the capsule, all its positions together."""
        return self.weights[:, :, self.slots :, : self.slots].sum(dim=3)

    @property
    def from_capsule(self) -> Tensor:
        """[N, heads, T] how much the capsule attends to each token, the mean of its positions."""
        return self.weights[:, :, : self.slots, self.slots :].mean(dim=2)

    @property
    def tokens(self) -> tuple[str, ...]:
        """The names of the T tokens."""
        return self.names[self.slots :]


def attention(loaded: LoadedBackbone, capsule: Capsule, inputs: Mapping[str, str]) -> AttentionMap:
    """Run one text with its capsule and keep every layer's attention.

    Args:
        loaded: the backbone, which nothing else may run meanwhile.
        capsule: of this backbone.
        inputs: the template's named inputs.

    Raises:
        InputError: the inputs do not fit the template, or are empty.
    """
    manifest = capsule.manifest
    (encoding,) = encode(loaded, capsule, [inputs])
    form = variant(manifest.variant)
    device = loaded.backbone.device
    tensors = {name: tensor.to(device) for name, tensor in capsule.tensors.items()}
    prompts = shared_prompts(form, manifest.length, manifest.injected, tensors, rows=1)
    tokens = pad([encoding], loaded.tokeniser.pad_id).to(device)
    with recorded(loaded.backbone) as layers, torch.no_grad():
        InjectedBackbone(loaded.backbone).features(tokens, prompts)
    return AttentionMap(
        names=(*slot_names(prompts.slots), *loaded.tokeniser.names(encoding.input_ids)),
        slots=prompts.slots,
        weights=torch.stack([weights[0].float().cpu() for weights in layers]),
    )


def slot_names(slots: int) -> Sequence[str]:
    """What to call the capsule's positions."""
    return ["capsule"] if slots == 1 else [f"capsule {number}" for number in range(1, slots + 1)]


@contextmanager
def recorded(backbone: Backbone) -> Iterator[list[Tensor]]:
    """Keep the attention [B, heads, S, S] of every layer that runs inside, in order.

    Fused attention never has these weights, so inside the plain implementation runs.
    """
    found: list[Tensor] = []

    def keep(_module: nn.Module, _inputs: Any, output: tuple[Any, ...]) -> None:
        found.append(output[-1])

    model = backbone.model
    usual = model.config._attn_implementation
    model.set_attn_implementation("eager")
    handles = [module.register_forward_hook(keep) for module in backbone.attentions]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()
        model.set_attn_implementation(usual)
