"""The variants by name; a new one is a file and a line here."""

from importlib import import_module

from capsules.errors import ArtefactError, ArtefactFault
from capsules.variants.base import Variant

VARIANTS = {
    "addition": "capsules.variants.addition:Addition",
    "prepending": "capsules.variants.prepending:Prepending",
    "extraction": "capsules.variants.extraction:Extraction",
    "projection": "capsules.variants.projection:Projection",
    "task-only": "capsules.variants.task_only:TaskOnly",
    "instance-only": "capsules.variants.instance_only:InstanceOnly",
}


def variant(name: str) -> Variant:
    """The variant of that name.

    Raises:
        ArtefactError: there is none.
    """
    if name not in VARIANTS:
        known = ", ".join(sorted(VARIANTS))
        raise ArtefactError(
            f"The variant {name!r} is not supported; choose one of: {known}.",
            code=ArtefactFault.UNSUPPORTED_VARIANT,
            field="variant",
        )
    module, _, attribute = VARIANTS[name].partition(":")
    created: Variant = getattr(import_module(module), attribute)()
    return created
