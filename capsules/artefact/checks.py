"""Rules that tie a manifest to its tensors and to a backbone."""

import math
from collections.abc import Mapping, Sequence

import torch

from capsules.artefact.manifest import (
    MAX_GOLDEN_CHARACTERS,
    RESERVED_NAMES,
    BackboneRef,
    Golden,
    Manifest,
)
from capsules.core import Geometry
from capsules.errors import ArtefactError, ArtefactFault, OptionError
from capsules.labels import is_blank
from capsules.layers import injected_layers
from capsules.template import Template
from capsules.variants.registry import variant


def check_manifest(manifest: Manifest) -> None:
    """Rules between a manifest's keys that its schema cannot state.

    Raises:
        ArtefactError: with the code of the rule that is broken.
    """
    if manifest.task in RESERVED_NAMES:
        raise ArtefactError(
            f"The task name {manifest.task!r} is reserved; choose another.",
            code=ArtefactFault.INVALID_MANIFEST,
            field="task",
        )
    slots = variant(manifest.variant).slots(manifest.length)
    try:
        injected_layers(manifest.layers, manifest.backbone.num_layers)
    except OptionError as error:
        raise ArtefactError(
            error.message, code=ArtefactFault.UNSUPPORTED_LAYERS, field="layers"
        ) from error
    check_labels(manifest)
    template = Template(manifest.template)
    template.check()
    if manifest.max_length <= slots + 2:
        raise ArtefactError(
            f"max_length {manifest.max_length} leaves no room for text beside {slots} capsule "
            "token(s) and the special tokens; raise it.",
            code=ArtefactFault.INVALID_MAX_LENGTH,
            field="max_length",
        )
    for index, golden in enumerate(manifest.golden):
        check_golden(index, golden, manifest.labels, template)


def check_labels(manifest: Manifest) -> None:
    """Labels must differ from each other and have verbalizers exactly where the family reads words.

    Raises:
        ArtefactError: they do not.
    """
    seen: set[str] = set()
    for label in manifest.labels:
        if is_blank(label) or label in seen:
            raise ArtefactError(
                f"The label {label!r} is {'repeated' if label in seen else 'blank'}; labels must "
                "be distinct and not blank.",
                code=ArtefactFault.INVALID_LABELS,
                field="labels",
            )
        seen.add(label)
    reads_words = manifest.backbone.family == "encoder-decoder"
    if reads_words != (manifest.verbalizers is not None):
        raise ArtefactError(
            "Encoder-decoder capsules need verbalizers, and no others may have them.",
            code=ArtefactFault.INVALID_LABELS,
            field="verbalizers",
        )
    if manifest.verbalizers is not None and set(manifest.verbalizers) != seen:
        raise ArtefactError(
            "The verbalizers must give one word for each label, and nothing else.",
            code=ArtefactFault.INVALID_LABELS,
            field="verbalizers",
        )


def check_golden(index: int, golden: Golden, labels: Sequence[str], template: Template) -> None:
    """A golden example must be one that can be replayed.

    Args:
        index: its position, for the message.
        golden: the example.
        labels: those of the head.
        template: takes the inputs.

    Raises:
        ArtefactError: inputs, label or probabilities are not those of the capsule, or the text is
            too long.
    """
    if golden.inputs.keys() != template.uses.keys():
        raise ArtefactError(
            f"Golden example {index} has the inputs {sorted(golden.inputs)}, but the template "
            f"takes {sorted(template.fields)}.",
            code=ArtefactFault.INVALID_TEMPLATE,
            field=f"golden.{index}.inputs",
        )
    characters = template.length(golden.inputs)
    if characters > MAX_GOLDEN_CHARACTERS:
        raise ArtefactError(
            f"Golden example {index} has {characters} characters in the template, and at most "
            f"{MAX_GOLDEN_CHARACTERS} are replayed; record a shorter one.",
            code=ArtefactFault.INVALID_MANIFEST,
            field=f"golden.{index}.inputs",
        )
    if golden.label not in labels or len(golden.probs) != len(labels):
        raise ArtefactError(
            f"Golden example {index} does not fit the {len(labels)} labels: it needs one of them "
            "as label and one probability for each.",
            code=ArtefactFault.INVALID_LABELS,
            field=f"golden.{index}",
        )


def expected_shapes(manifest: Manifest) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the tensors that a manifest calls for.

    `capsule` [injections, length, D] and whatever else the variant learns; `head.weight`
    [labels, D] unless labels are words; `head.bias` [labels] for encoder-only backbones.
    """
    reference = manifest.backbone
    geometry = Geometry(num_layers=reference.num_layers, hidden_size=reference.hidden_size)
    shapes = variant(manifest.variant).shapes(geometry, manifest.injections, manifest.length)
    labels = len(manifest.labels)
    if reference.family != "encoder-decoder":
        shapes["head.weight"] = (labels, reference.hidden_size)
    if reference.family == "encoder-only":
        shapes["head.bias"] = (labels,)
    return shapes


def check_tensors(manifest: Manifest, tensors: Mapping[str, torch.Tensor]) -> None:
    """The tensors must be those called for: same names, float32, same shapes, finite.

    Raises:
        ArtefactError: with the tensor's name as field.
    """
    expected = expected_shapes(manifest)
    for name in sorted(expected.keys() - tensors.keys()):
        raise ArtefactError(
            f"The tensor {name!r} is missing; the variant {manifest.variant!r} here holds "
            f"{', '.join(sorted(expected))}.",
            code=ArtefactFault.MISSING_TENSOR,
            field=name,
        )
    for name in sorted(tensors.keys() - expected.keys()):
        raise ArtefactError(
            f"The tensor {name!r} does not belong to the variant {manifest.variant!r} on this "
            f"backbone, which holds {', '.join(sorted(expected))}.",
            code=ArtefactFault.UNEXPECTED_TENSOR,
            field=name,
        )
    for name, shape in expected.items():
        check_tensor(name, tensors[name], shape)


def check_tensor(name: str, tensor: torch.Tensor, shape: tuple[int, ...]) -> None:
    """One tensor's dtype, shape and values; see :func:`check_tensors`."""
    if tensor.dtype != torch.float32:
        raise ArtefactError(
            f"The tensor {name!r} is {str(tensor.dtype).removeprefix('torch.')}; save it as "
            "float32.",
            code=ArtefactFault.TENSOR_DTYPE,
            field=name,
        )
    if tuple(tensor.shape) != shape:
        raise ArtefactError(
            f"The tensor {name!r} has shape {list(tensor.shape)}, but the manifest calls for "
            f"{list(shape)}.",
            code=ArtefactFault.TENSOR_SHAPE,
            field=name,
        )
    # One sum finds any NaN or infinity; only one that overflows is no proof of any.
    if not math.isfinite(tensor.sum().item()) and not bool(torch.isfinite(tensor).all()):
        raise ArtefactError(
            f"The tensor {name!r} holds NaN or infinity.",
            code=ArtefactFault.NON_FINITE_TENSOR,
            field=name,
        )


def check_backbone(manifest: Manifest, backbone: BackboneRef, max_tokens: int) -> None:
    """A capsule is accepted only on the backbone that it was trained on.

    Args:
        manifest: the capsule's.
        backbone: the one that would run it.
        max_tokens: the longest text it takes, special tokens included.

    Raises:
        ArtefactError: it was trained on another, or for longer texts than this one takes.
    """
    theirs = manifest.backbone
    if theirs.fingerprint != backbone.fingerprint:
        raise ArtefactError(
            f"The capsule was trained on {theirs.id!r} (fingerprint {theirs.fingerprint[:12]}…), "
            f"but this backbone is {backbone.id!r} (fingerprint {backbone.fingerprint[:12]}…). "
            "Train it on this backbone, or serve it where its own is loaded.",
            code=ArtefactFault.BACKBONE_MISMATCH,
            field="backbone.fingerprint",
        )
    for key in ("family", "hidden_size", "num_layers"):
        if getattr(theirs, key) != getattr(backbone, key):
            raise ArtefactError(
                f"The manifest's backbone.{key} is {getattr(theirs, key)!r}, but the backbone of "
                f"that fingerprint has {getattr(backbone, key)!r}.",
                code=ArtefactFault.BACKBONE_MISMATCH,
                field=f"backbone.{key}",
            )
    slots = variant(manifest.variant).slots(manifest.length)
    if manifest.max_length - slots > max_tokens:
        raise ArtefactError(
            f"max_length {manifest.max_length} is more than this backbone takes: {max_tokens} "
            f"tokens of text and {slots} of capsule.",
            code=ArtefactFault.INVALID_MAX_LENGTH,
            field="max_length",
        )
