"""The adapter of every family on a tiny random model, beside the independent reference."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from capsules.backbones.base import Backbone
from capsules.backbones.registry import backbone_class
from tests.reference.capsule import Transformer
from tests.support.models import FIRST_WORD, MODELS, VOCABULARY, Tiny

__all__ = ["FAMILIES", "FIRST_WORD", "VOCABULARY", "Subject", "subject_of"]


@dataclass(frozen=True, slots=True)
class Subject:
    """A backbone and the reference on the same weights.

    Attributes:
        backbone: the model in its adapter.
        reference: computes in float64, whatever the model's dtype is.
        pad_id: fills up its rows.
        width: D.
        num_layers: N.
    """

    backbone: Backbone
    reference: Transformer
    pad_id: int
    width: int
    num_layers: int

    @property
    def ends(self) -> Sequence[nn.Module]:
        """The modules that put out each layer's hidden states: the layers, but for a convolution."""
        encoder: Any = getattr(self.backbone.model, "encoder", None)
        layers = self.backbone.layers
        if getattr(encoder, "conv", None) is None:
            return layers
        return [encoder.conv, *layers[1:]]


def subject_of(tiny: Tiny) -> Subject:
    """Put the adapter that serves a model's type around it."""
    adapter = backbone_class(tiny.model.config.model_type)
    return Subject(
        backbone=adapter(tiny.model),
        reference=tiny.reference,
        pad_id=tiny.pad_id,
        width=tiny.width,
        num_layers=tiny.num_layers,
    )


def exact(name: str) -> Callable[[], Subject]:
    """Makes the float64 subject of a family."""
    return lambda: subject_of(MODELS[name](exact=True))


FAMILIES: dict[str, Callable[[], Subject]] = {name: exact(name) for name in MODELS}
