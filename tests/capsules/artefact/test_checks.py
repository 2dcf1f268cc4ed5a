"""Each rule between manifest, tensors and backbone, with the fault it has when broken."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import safetensors.torch
import torch

from capsules.artefact.checks import check_backbone, expected_shapes
from capsules.artefact.file import Capsule, dump, parse
from capsules.artefact.manifest import BackboneRef, Manifest
from capsules.errors import ArtefactError, ArtefactFault
from tests.support.batches import VARIANTS
from tests.support.capsules import manifest_for, random_capsule
from tests.support.files import INFO, assemble, manifest_of, take_apart, with_manifest


@dataclass(frozen=True)
class Case:
    """A file with one fault, and what is said of it.

    Attributes:
        make: the faulty file, from a good one.
        field: key or tensor that is named.
        says: what the message holds.
    """

    make: Callable[[bytes], bytes]
    field: str | None
    says: str


def manifest(**keys: Any) -> Callable[[bytes], bytes]:
    """The file with some keys of its manifest replaced."""
    return lambda good: with_manifest(good, {**manifest_of(good), **keys})


def without(key: str) -> Callable[[bytes], bytes]:
    """The file with a key of its manifest left out."""

    def apply(good: bytes) -> bytes:
        keys = manifest_of(good)
        del keys[key]
        return with_manifest(good, keys)

    return apply


def tensors(**changes: Any) -> Callable[[bytes], bytes]:
    """The file with some tensors replaced, or left out where None; dots as double underscores."""

    def apply(good: bytes) -> bytes:
        named = {name.replace("__", "."): value for name, value in changes.items()}
        kept = {**safetensors.torch.load(good), **named}
        saved = {name: value for name, value in kept.items() if value is not None}
        header, body = take_apart(safetensors.torch.save(saved))
        return assemble({**header, "__metadata__": take_apart(good)[0]["__metadata__"]}, body)

    return apply


def golden(**keys: Any) -> Callable[[bytes], bytes]:
    example = {"inputs": {"text": "a"}, "label": "label-0", "probs": [0.5, 0.25, 0.25], **keys}
    good_example = {
        **example,
        "inputs": {"text": "b"},
        "label": "label-1",
        "probs": [0.0, 1.0, 0.0],
    }
    return manifest(golden=[good_example, example])


def backbone(**keys: Any) -> Callable[[bytes], bytes]:
    return lambda good: manifest(backbone={**manifest_of(good)["backbone"], **keys})(good)


def both(
    one: Callable[[bytes], bytes], other: Callable[[bytes], bytes]
) -> Callable[[bytes], bytes]:
    """One change after the other."""
    return lambda good: other(one(good))


def training(**keys: Any) -> Callable[[bytes], bytes]:
    record = {
        "data_digest": "0" * 64,
        "splits": {"train": 3, "validation": 2},
        "seed": 0,
        "epochs": 1,
        "best_epoch": 1,
        "batch_size": 16,
        "learning_rate": 0.1,
        "metrics": {},
        "duration_seconds": 1.0,
        "library_versions": {},
    }
    return manifest(training={**record, **keys})


F = ArtefactFault
CASES: dict[str, tuple[ArtefactFault, Case]] = {
    # What the framing has; test_file.py knows many more ways.
    "too few bytes": (F.TOO_SMALL, Case(lambda good: good[:9], None, "too few")),
    "another format": (F.NOT_SAFETENSORS, Case(lambda _: b"PK" + bytes(99), None, "pickles")),
    "huge header": (
        F.HEADER_TOO_LARGE,
        Case(lambda good: assemble(b"{}" + good, length=2**63), None, "at most 8388608"),
    ),
    "bad header": (F.INVALID_HEADER, Case(lambda _: assemble(b"{]"), None, "not valid JSON")),
    "cut short": (F.TRUNCATED, Case(lambda good: good[:-1], None, "Upload it again")),
    "no manifest": (
        F.MISSING_MANIFEST,
        Case(lambda good: assemble({}), "capsule", "not a capsule"),
    ),
    # The manifest by itself.
    "key missing": (F.INVALID_MANIFEST, Case(without("task"), "task", "Field required")),
    "backbone missing": (
        F.INVALID_MANIFEST,
        Case(without("backbone"), "backbone", "Field required"),
    ),
    "labels missing": (F.INVALID_LABELS, Case(without("labels"), "labels", "Field required")),
    "unknown key": (F.INVALID_MANIFEST, Case(manifest(tsak="a"), "tsak", "none of schema_version")),
    "unknown backbone key": (
        F.INVALID_MANIFEST,
        Case(backbone(name="x"), "backbone.name", "none of id, family, hidden_size,"),
    ),
    "family unknown": (
        F.INVALID_MANIFEST,
        Case(backbone(family="recurrent"), "backbone.family", "encoder-only"),
    ),
    "fingerprint no sha256": (
        F.INVALID_MANIFEST,
        Case(backbone(fingerprint="F" * 64), "backbone.fingerprint", "64 of 0-9 a-f"),
    ),
    "task with a slash": (F.INVALID_MANIFEST, Case(manifest(task="a/b"), "task", "1 to 63 of")),
    "task climbing": (F.INVALID_MANIFEST, Case(manifest(task="../a"), "task", "1 to 63 of")),
    "task with a line end": (F.INVALID_MANIFEST, Case(manifest(task="a\n"), "task", "1 to 63 of")),
    "task upper case": (F.INVALID_MANIFEST, Case(manifest(task="Trec"), "task", "1 to 63 of")),
    "task emoji": (
        F.INVALID_MANIFEST,
        Case(manifest(task="\N{PILE OF POO}"), "task", "1 to 63 of"),
    ),
    "task too long": (F.INVALID_MANIFEST, Case(manifest(task="a" * 64), "task", "1 to 63 of")),
    "task empty": (F.INVALID_MANIFEST, Case(manifest(task=""), "task", "1 to 63 of")),
    "task a number": (F.INVALID_MANIFEST, Case(manifest(task=5), "task", "1 to 63 of")),
    "task reserved": (F.INVALID_MANIFEST, Case(manifest(task="latest"), "task", "reserved")),
    "length zero": (F.INVALID_MANIFEST, Case(manifest(length=0), "length", "greater than")),
    "length a string": (F.INVALID_MANIFEST, Case(manifest(length="1"), "length", "integer")),
    "length a truth": (F.INVALID_MANIFEST, Case(manifest(length=True), "length", "integer")),
    "description of NaN": (
        F.INVALID_MANIFEST,
        Case(manifest(description=float("nan")), "description", "valid string"),
    ),
    "lone surrogate": (
        F.INVALID_MANIFEST,
        Case(
            manifest(description="a \ud800"),
            "description",
            """half a surrogate pair follows '{"description": "a '""",
        ),
    ),
    "lone surrogate deep inside": (
        F.INVALID_MANIFEST,
        Case(training(library_versions={"torch": "\ud800"}), "training", '"torch": "'),
    ),
    "lone surrogate in a key": (
        F.INVALID_MANIFEST,
        Case(training(metrics={"f1 \udfff": 0.5}), "training", '"f1 '),
    ),
    "lone surrogate in a key of the manifest": (
        F.INVALID_MANIFEST,
        Case(manifest(**{"\udc00": 1}), "\\udc00", "write well-formed Unicode"),
    ),
    "lone surrogate in a golden text": (
        F.INVALID_MANIFEST,
        Case(golden(inputs={"text": "a\ud83d"}), "golden", '"text": "a'),
    ),
    "lone surrogate in a template": (
        F.INVALID_MANIFEST,
        Case(manifest(template="{text} \ud800"), "template", "{text}"),
    ),
    "lone surrogate in a word": (
        F.INVALID_MANIFEST,
        Case(manifest(verbalizers={"label-0": "\ud800"}), "verbalizers", '"label-0": "'),
    ),
    "too many values": (
        F.INVALID_MANIFEST,
        Case(manifest(more=[0] * 200_000), "capsule", "more than 131072 values"),
    ),
    "too many layers": (
        F.INVALID_MANIFEST,
        Case(backbone(num_layers=10**12), "backbone.num_layers", "less than or equal"),
    ),
    "probability of NaN": (
        F.INVALID_MANIFEST,
        Case(golden(probs=[float("nan"), 0, 1]), "golden.1.probs.0", "finite"),
    ),
    "probability above one": (
        F.INVALID_MANIFEST,
        Case(golden(probs=[1.5, 0, 0]), "golden.1.probs.0", "less than or equal"),
    ),
    "too many golden": (
        F.INVALID_MANIFEST,
        Case(
            manifest(
                golden=[{"inputs": {"text": "a"}, "label": "label-0", "probs": [1, 0, 0]}] * 9
            ),
            "golden",
            "at most 8",
        ),
    ),
    "no version": (
        F.UNSUPPORTED_SCHEMA_VERSION,
        Case(without("schema_version"), "schema_version", "reads version 1"),
    ),
    "version with a point": (
        F.UNSUPPORTED_SCHEMA_VERSION,
        Case(manifest(schema_version=1.0), "schema_version", "no whole number"),
    ),
    "later version": (
        F.UNSUPPORTED_SCHEMA_VERSION,
        Case(manifest(schema_version=2), "schema_version", "should be 1"),
    ),
    "version a string": (
        F.UNSUPPORTED_SCHEMA_VERSION,
        Case(manifest(schema_version="1"), "schema_version", "should be 1"),
    ),
    "version true": (
        F.UNSUPPORTED_SCHEMA_VERSION,
        Case(manifest(schema_version=True), "schema_version", "reads version 1"),
    ),
    "variant unknown": (
        F.UNSUPPORTED_VARIANT,
        Case(manifest(variant="telepathy"), "variant", "choose one of: addition"),
    ),
    "layers unknown": (
        F.UNSUPPORTED_LAYERS,
        Case(
            manifest(layers="even"),
            "layers",
            "give one of all, input, first-half, latter-half, odd, or a list of layer numbers",
        ),
    ),
    "layers null": (F.UNSUPPORTED_LAYERS, Case(manifest(layers=None), "layers", "give one of all")),
    "a layer by name": (
        F.UNSUPPORTED_LAYERS,
        Case(manifest(layers=[1, "2"]), "layers", "a list of layer numbers from 1"),
    ),
    "a layer that is a truth": (
        F.UNSUPPORTED_LAYERS,
        Case(manifest(layers=[True]), "layers", "a list of layer numbers from 1"),
    ),
    "no layers": (F.UNSUPPORTED_LAYERS, Case(manifest(layers=[]), "layers", "none of the 2")),
    "no latter half": (
        F.UNSUPPORTED_LAYERS,
        Case(both(backbone(num_layers=1), manifest(layers="latter-half")), "layers", "none of"),
    ),
    "a layer before the first": (
        F.UNSUPPORTED_LAYERS,
        Case(manifest(layers=[0, 1]), "layers", "[0, 1] does not lie within 1 to 2"),
    ),
    "a layer after the last": (
        F.UNSUPPORTED_LAYERS,
        Case(manifest(layers=[2, 3]), "layers", "[2, 3] does not lie within 1 to 2"),
    ),
    "layers backwards": (
        F.UNSUPPORTED_LAYERS,
        Case(manifest(layers=[2, 1]), "layers", "not in ascending order"),
    ),
    "a layer twice": (
        F.UNSUPPORTED_LAYERS,
        Case(manifest(layers=[1, 1]), "layers", "repeats a layer"),
    ),
    "more layers than there are": (
        F.INVALID_MANIFEST,
        Case(backbone(num_layers=10**12), "backbone.num_layers", "less than or equal to 10000"),
    ),
    "one label": (F.INVALID_LABELS, Case(manifest(labels=["a"]), "labels", "at least 2")),
    "label empty": (
        F.INVALID_LABELS,
        Case(manifest(labels=["a", "", "c"]), "labels.1", "at least 1"),
    ),
    "label blank": (F.INVALID_LABELS, Case(manifest(labels=["a", " \t", "c"]), "labels", "blank")),
    "label that shows nothing": (
        F.INVALID_LABELS,
        Case(manifest(labels=["a", "\u200b", "c"]), "labels", "blank"),
    ),
    "label twice": (F.INVALID_LABELS, Case(manifest(labels=["a", "b", "a"]), "labels", "repeated")),
    "label too long": (
        F.INVALID_LABELS,
        Case(manifest(labels=["a", "b" * 257, "c"]), "labels.1", "at most 256"),
    ),
    "label null": (F.INVALID_LABELS, Case(manifest(labels=["a", None, "c"]), "labels.1", "string")),
    "too many labels": (
        F.INVALID_LABELS,
        Case(manifest(labels=[str(n) for n in range(10_001)]), "labels", "at most 10000"),
    ),
    "words where none are read": (
        F.INVALID_LABELS,
        Case(manifest(verbalizers={"label-0": "a"}), "verbalizers", "no others may have them"),
    ),
    "no words where they are read": (
        F.INVALID_LABELS,
        Case(backbone(family="encoder-decoder"), "verbalizers", "need verbalizers"),
    ),
    "a word without letters": (
        F.INVALID_MANIFEST,
        Case(manifest(verbalizers={"label-0": ""}), "verbalizers.label-0", "at least 1"),
    ),
    "golden label unknown": (F.INVALID_LABELS, Case(golden(label="x"), "golden.1", "one of them")),
    "golden probabilities too few": (
        F.INVALID_LABELS,
        Case(golden(probs=[1.0, 0.0]), "golden.1", "one probability for each"),
    ),
    "golden inputs of another template": (
        F.INVALID_TEMPLATE,
        Case(golden(inputs={"premise": "a"}), "golden.1.inputs", "takes ['text']"),
    ),
    "golden text too long": (
        F.INVALID_MANIFEST,
        Case(golden(inputs={"text": "a" * 100_001}), "golden.1.inputs", "has 100001 characters"),
    ),
    "golden text too long in its template": (
        F.INVALID_MANIFEST,
        Case(
            lambda good: golden(inputs={"text": "a" * 50_000})(
                manifest(template="{text} or {text}")(good)
            ),
            "golden.1.inputs",
            "has 100004 characters in the template",
        ),
    ),
    "template that multiplies": (
        F.INVALID_TEMPLATE,
        Case(manifest(template="{text}" * 682), "template", "the field {text} 682 times"),
    ),
    "template with an empty specification": (
        F.INVALID_TEMPLATE,
        Case(manifest(template="{text:}"), "template", "the field {text:}"),
    ),
    "template without a field": (
        F.INVALID_TEMPLATE,
        Case(manifest(template="text"), "template", "names no field"),
    ),
    "template empty": (F.INVALID_TEMPLATE, Case(manifest(template=""), "template", "at least 1")),
    "template reaching inside": (
        F.INVALID_TEMPLATE,
        Case(manifest(template="{text.__class__}"), "template", "a plain name such as {text}"),
    ),
    "template a list": (
        F.INVALID_TEMPLATE,
        Case(manifest(template=["{text}"]), "template", "string"),
    ),
    "max_length too short": (
        F.INVALID_MAX_LENGTH,
        Case(manifest(max_length=3), "max_length", "no room for text"),
    ),
    "max_length too short for the slots": (
        F.INVALID_MAX_LENGTH,
        Case(
            manifest(variant="prepending", length=2, max_length=5),
            "max_length",
            "beside 3 capsule token(s)",
        ),
    ),
    "max_length negative": (
        F.INVALID_MAX_LENGTH,
        Case(manifest(max_length=-1), "max_length", "greater than"),
    ),
    "max_length NaN": (
        F.INVALID_MAX_LENGTH,
        Case(manifest(max_length=float("nan")), "max_length", "integer"),
    ),
    # Tensors against the manifest.
    "tensor missing": (
        F.MISSING_TENSOR,
        Case(tensors(head__bias=None), "head.bias", "holds capsule, head.bias, head.weight"),
    ),
    "no tensors": (
        F.MISSING_TENSOR,
        Case(tensors(capsule=None, head__bias=None, head__weight=None), "capsule", "is missing"),
    ),
    "tensor too many": (
        F.UNEXPECTED_TENSOR,
        Case(tensors(extra=torch.ones(1)), "extra", "does not belong"),
    ),
    "tensor of another variant": (
        F.UNEXPECTED_TENSOR,
        Case(tensors(extraction__bias=torch.ones(2, 8)), "extraction.bias", "variant 'addition'"),
    ),
    "tensor of a variant missing": (
        F.MISSING_TENSOR,
        Case(
            manifest(variant="projection"),
            "projection.down",
            "holds capsule, head.bias, head.weight, projection.down, projection.up",
        ),
    ),
    "learned vectors where none are": (
        F.UNEXPECTED_TENSOR,
        Case(manifest(variant="instance-only"), "capsule", "which holds head.bias, head.weight"),
    ),
    "bfloat16": (
        F.TENSOR_DTYPE,
        Case(tensors(capsule=torch.ones(2, 1, 8).bfloat16()), "capsule", "is bfloat16"),
    ),
    "float64": (
        F.TENSOR_DTYPE,
        Case(tensors(capsule=torch.ones(2, 1, 8).double()), "capsule", "save it as float32"),
    ),
    "integers": (
        F.TENSOR_DTYPE,
        Case(tensors(head__bias=torch.ones(3).int()), "head.bias", "is int32"),
    ),
    "a layer too many": (
        F.TENSOR_SHAPE,
        Case(tensors(capsule=torch.ones(3, 1, 8)), "capsule", "calls for [2, 1, 8]"),
    ),
    "more layers than injections": (
        F.TENSOR_SHAPE,
        Case(manifest(layers=[2]), "capsule", "calls for [1, 1, 8]"),
    ),
    "transposed": (
        F.TENSOR_SHAPE,
        Case(tensors(head__weight=torch.ones(8, 3)), "head.weight", "calls for [3, 8]"),
    ),
    "without rows": (
        F.TENSOR_SHAPE,
        Case(tensors(head__bias=torch.ones(0)), "head.bias", "has shape [0]"),
    ),
    "without dimensions": (
        F.TENSOR_SHAPE,
        Case(tensors(head__bias=torch.ones(())), "head.bias", "has shape []"),
    ),
    "a label more than rows": (
        F.TENSOR_SHAPE,
        Case(manifest(labels=list("abcd")), "head.weight", "calls for [4, 8]"),
    ),
    "length that is not the tensor's": (
        F.TENSOR_SHAPE,
        Case(manifest(length=2), "capsule", "calls for [2, 2, 8]"),
    ),
    "a width no tensor can have": (
        F.TENSOR_SHAPE,
        Case(backbone(hidden_size=10**30), "capsule", f"[2, 1, {10**30}]"),
    ),
    "more tensors than are read": (
        F.INVALID_HEADER,
        Case(
            tensors(**{f"extra{n}": torch.ones(0) for n in range(62)}),
            None,
            "names 65 tensors, and at most 64",
        ),
    ),
    "NaN": (
        F.NON_FINITE_TENSOR,
        Case(tensors(head__bias=torch.tensor([0, float("nan"), 0])), "head.bias", "NaN"),
    ),
    "infinity": (
        F.NON_FINITE_TENSOR,
        Case(tensors(capsule=torch.full((2, 1, 8), float("-inf"))), "capsule", "infinity"),
    ),
}


@pytest.mark.parametrize(("fault", "case"), CASES.values(), ids=CASES.keys())
def test_a_broken_rule_is_named(fault: ArtefactFault, case: Case, good: bytes) -> None:
    with pytest.raises(ArtefactError) as refused:
        parse(case.make(good))
    assert refused.value.code == fault
    assert refused.value.field == case.field
    assert case.says in refused.value.message
    assert refused.value.message.endswith(".")


def test_every_fault_of_a_file_is_covered() -> None:
    # A mismatch of the backbone is tested below, one of golden examples where they are replayed.
    elsewhere = {F.BACKBONE_MISMATCH, F.GOLDEN_MISMATCH}
    assert {fault for fault, _ in CASES.values()} | elsewhere == set(ArtefactFault)


def test_what_is_just_within_the_limits_is_read(good: bytes) -> None:
    half = "a" * 49_998
    read = parse(golden(inputs={"text": half})(manifest(template="{text} or {text}")(good)))
    assert read.manifest.golden[1].inputs == {"text": half}


@pytest.mark.parametrize("seed", [0, 2**63, 2**70])
def test_numbers_of_any_size_are_kept(good: bytes, seed: int) -> None:
    record = parse(training(seed=seed)(good)).manifest.training
    assert record is not None
    assert record.seed == seed


def test_labels_are_told_apart_by_their_code_points(good: bytes) -> None:
    labels = ["caf\u00e9", "cafe\u0301", "cafe"]
    assert parse(manifest(labels=labels)(good)).manifest.labels == labels


def reference(**keys: Any) -> BackboneRef:
    return manifest_for(INFO).backbone.model_copy(update=keys)


def test_a_capsule_fits_the_backbone_it_was_trained_on(capsule: Capsule) -> None:
    check_backbone(capsule.manifest, reference(id="the same under another name"), 64)


@pytest.mark.parametrize(
    ("keys", "field"),
    [
        ({"fingerprint": "b" * 64, "hidden_size": 16}, "backbone.fingerprint"),
        ({"family": "decoder-only"}, "backbone.family"),
        ({"hidden_size": 16}, "backbone.hidden_size"),
        ({"num_layers": 3}, "backbone.num_layers"),
    ],
)
def test_another_backbone_is_refused(capsule: Capsule, keys: Mapping[str, Any], field: str) -> None:
    with pytest.raises(ArtefactError) as refused:
        check_backbone(capsule.manifest, reference(**keys), 64)
    assert (refused.value.code, refused.value.field) == (F.BACKBONE_MISMATCH, field)


def test_another_backbone_is_named(capsule: Capsule) -> None:
    with pytest.raises(ArtefactError, match="Train it on this backbone") as refused:
        check_backbone(capsule.manifest, reference(id="other", fingerprint="b" * 64), 64)
    for part in ("'tests/none'", "'other'", "a" * 12, "b" * 12):
        assert part in refused.value.message


@pytest.mark.parametrize(
    ("variant", "length", "slots"), [("addition", 1, 1), ("addition", 3, 3), ("prepending", 2, 3)]
)
def test_max_length_is_text_and_capsule_together(variant: str, length: int, slots: int) -> None:
    def check(max_length: int) -> None:
        manifest = manifest_for(INFO, variant=variant, length=length, max_length=max_length)
        check_backbone(manifest, reference(), INFO.max_tokens)

    check(INFO.max_tokens + slots)
    with pytest.raises(ArtefactError) as refused:
        check(INFO.max_tokens + slots + 1)
    assert (refused.value.code, refused.value.field) == (F.INVALID_MAX_LENGTH, "max_length")


@pytest.mark.parametrize(
    ("family", "head"),
    [
        ("encoder-only", {"head.weight": (3, 8), "head.bias": (3,)}),
        ("decoder-only", {"head.weight": (3, 8)}),
        ("encoder-decoder", {}),
    ],
)
def test_the_family_decides_what_head_there_is(family: str, head: dict[str, Any]) -> None:
    manifest = manifest_for(INFO, length=2)
    of_family = Manifest.model_validate(
        {**manifest.model_dump(), "backbone": {**manifest.backbone.model_dump(), "family": family}}
    )
    assert expected_shapes(of_family) == {"capsule": (2, 2, 8), **head}


def shapes_of(variant: str, injections: int) -> dict[str, tuple[int, ...]]:
    """What a file of a variant holds on the claimed backbone, for two tokens and three labels."""
    own: dict[str, dict[str, tuple[int, ...]]] = {
        "extraction": {"extraction.weight": (8, 5), "extraction.bias": (8,)},
        "projection": {"projection.down": (8, 8), "projection.up": (8, 8)},
    }
    learned = {} if variant == "instance-only" else {"capsule": (2, 8), **own.get(variant, {})}
    of_layers = {name: (injections, *shape) for name, shape in learned.items()}
    return {**of_layers, "head.weight": (3, 8), "head.bias": (3,)}


@pytest.mark.parametrize(
    ("layers", "injections"), [("all", 2), ("input", 1), ("odd", 1), ([2], 1), ([1, 2], 2)]
)
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_variant_and_the_layers_decide_what_tensors_there_are(
    variant: str, layers: Any, injections: int
) -> None:
    manifest = manifest_for(INFO, variant=variant, length=2, layers=layers)
    assert expected_shapes(manifest) == shapes_of(variant, injections)


@pytest.mark.parametrize("variant", VARIANTS)
def test_each_tensor_of_a_variant_is_called_for(variant: str) -> None:
    capsule = random_capsule(INFO, variant=variant, length=2)
    assert capsule.tensors.keys() == shapes_of(variant, 2).keys()
    file = dump(capsule)
    assert parse(file).manifest.variant == variant
    for name, tensor in capsule.tensors.items():
        for other, fault in ((None, F.MISSING_TENSOR), (tensor[:-1], F.TENSOR_SHAPE)):
            with pytest.raises(ArtefactError) as refused:
                parse(tensors(**{name: other})(file))
            assert (refused.value.code, refused.value.field) == (fault, name)


@pytest.mark.parametrize(
    ("verbalizers", "accepted"),
    [
        ({"label-0": "no", "label-1": "yes", "label-2": "maybe"}, True),
        ({"label-0": "no", "label-1": "yes"}, False),
        ({"label-0": "no", "label-1": "yes", "label-2": "maybe", "more": "x"}, False),
    ],
)
def test_every_label_needs_its_word(verbalizers: dict[str, str], accepted: bool) -> None:
    capsule = random_capsule(INFO)
    keys = capsule.manifest.model_dump(mode="json")
    keys["backbone"]["family"] = "encoder-decoder"
    data = safetensors.torch.save({"capsule": capsule.tensors["capsule"]}, metadata={"capsule": ""})
    file = with_manifest(data, {**keys, "verbalizers": verbalizers})
    if accepted:
        assert parse(file).manifest.verbalizers == verbalizers
        return
    with pytest.raises(ArtefactError, match="one word for each label") as refused:
        parse(file)
    assert (refused.value.code, refused.value.field) == (F.INVALID_LABELS, "verbalizers")
