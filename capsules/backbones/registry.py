"""The families by model type; a new one is a file and a line here."""

from importlib import import_module

from capsules.backbones.base import Backbone
from capsules.errors import BackboneError, BackboneFault

FAMILIES = {
    "bert": "capsules.backbones.encoder:Encoder",
    "roberta": "capsules.backbones.encoder:Encoder",
    "xlm-roberta": "capsules.backbones.encoder:Encoder",
    "deberta-v2": "capsules.backbones.deberta:Deberta",
    "t5": "capsules.backbones.t5:T5",
    "mt5": "capsules.backbones.t5:T5",
    "llama": "capsules.backbones.decoder:Decoder",
    "qwen2": "capsules.backbones.decoder:Decoder",
    "qwen3": "capsules.backbones.decoder:Decoder",
    "gemma3_text": "capsules.backbones.gemma:Gemma",
}


def backbone_class(model_type: str) -> type[Backbone]:
    """The adapter for a transformers model type.

    Raises:
        BackboneError: no adapter serves it.
    """
    if model_type not in FAMILIES:
        known = ", ".join(sorted(FAMILIES))
        raise BackboneError(
            f"Backbones of type {model_type!r} are not supported. Supported: {known}. To add one, "
            "write an adapter in capsules/backbones/ and register it in registry.py.",
            code=BackboneFault.UNSUPPORTED_FAMILY,
        )
    module, _, attribute = FAMILIES[model_type].partition(":")
    adapter: type[Backbone] = getattr(import_module(module), attribute)
    return adapter
