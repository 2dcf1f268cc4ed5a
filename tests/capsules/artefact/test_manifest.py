import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from capsules import zoo
from capsules.artefact.checks import check_backbone, check_manifest, check_tensors
from capsules.artefact.file import dump, parse, read_header
from capsules.artefact.manifest import (
    TASK_NAME,
    BackboneRef,
    Golden,
    Manifest,
    Record,
    Splits,
    TrainingRecord,
    json_schema,
    parse_manifest,
)
from capsules.errors import ArtefactError, ArtefactFault
from tests.support.capsules import random_capsule
from tests.support.files import INFO, manifest_of

DOCS = Path(__file__).parents[3] / "docs"
SHIPPED = sorted((Path(zoo.__file__).parent / "artefacts").glob("*.safetensors"))
COMMAND = (
    'python -c "import json; from capsules.artefact.manifest import json_schema; '
    'print(json.dumps(json_schema(), indent=2))" > docs/manifest.schema.json'
)


@pytest.fixture(scope="module")
def published() -> Any:
    return json.loads((DOCS / "manifest.schema.json").read_text())


@pytest.fixture
def keys() -> dict[str, Any]:
    return random_capsule(INFO).manifest.model_dump(mode="json")


def test_the_published_schema_is_current() -> None:
    text = (DOCS / "manifest.schema.json").read_text()
    assert text == json.dumps(json_schema(), indent=2) + "\n", f"out of date, run: {COMMAND}"
    assert COMMAND in (DOCS / "artefact-format.md").read_text()


def test_the_published_schema_is_a_schema(published: Any) -> None:
    jsonschema.Draft202012Validator.check_schema(published)
    assert published["$schema"] == jsonschema.Draft202012Validator.META_SCHEMA["$id"]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_manifests_follow_the_published_schema(path: Path, published: Any) -> None:
    jsonschema.validate(manifest_of(path.read_bytes()), published)


def test_written_manifests_follow_the_published_schema(published: Any) -> None:
    jsonschema.validate(manifest_of(dump(random_capsule(INFO))), published)


@pytest.mark.parametrize(
    "change",
    [
        {"schema_version": 2},
        {"schema_version": True},
        {"schema_version": "1"},
        {"task": "A b"},
        {"task": "a" * 64},
        {"layers": "even"},
        {"layers": ["odd"]},
        {"layers": [1.5]},
        {"layers": [True]},
        {"layers": None},
        {"verbalizers": {"label-0": ""}},
        {"verbalizers": {"label-0": 1}},
        {"verbalizers": ["a", "b", "c"]},
        {"labels": ["one"]},
        {"length": 0},
        {"golden": [{"inputs": {}, "label": "a", "probs": [2.0]}]},
        {"more": 1},
        {"backbone": {"id": "x"}},
        {"template": ""},
    ],
    ids=str,
)
def test_schema_and_library_refuse_the_same(
    change: dict[str, Any], keys: dict[str, Any], published: Any
) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**keys, **change}, published)
    with pytest.raises(ArtefactError):
        parse_manifest({**keys, **change})


@pytest.mark.parametrize("layers", [0, -1, 10_001])
def test_schema_and_library_refuse_the_same_numbers_of_layers(
    layers: int, keys: dict[str, Any], published: Any
) -> None:
    keys["backbone"]["num_layers"] = layers
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(keys, published)
    with pytest.raises(ArtefactError) as refused:
        parse_manifest(keys)
    assert refused.value.field == "backbone.num_layers"


@pytest.mark.parametrize(
    ("layers", "injected"),
    [
        ("all", (0, 1, 2, 3, 4)),
        ("input", (0,)),
        ("first-half", (0, 1, 2)),
        ("latter-half", (3, 4)),
        ("odd", (0, 2, 4)),
        ([2], (1,)),
        ([1, 4, 5], (0, 3, 4)),
    ],
    ids=str,
)
def test_schema_and_library_accept_the_same_layers(
    layers: object, injected: tuple[int, ...], keys: dict[str, Any], published: Any
) -> None:
    keys = {**keys, "layers": layers, "backbone": {**keys["backbone"], "num_layers": 5}}
    jsonschema.validate(keys, published)
    manifest = parse_manifest(keys)
    assert (manifest.layers, manifest.injected) == (layers, injected)
    assert manifest.injections == len(injected)


def test_a_copy_with_other_layers_is_injected_there(keys: dict[str, Any]) -> None:
    manifest = parse_manifest(keys)
    assert manifest.injections == 2
    assert manifest.model_copy(update={"layers": [2]}).injected == (1,)


def test_words_stand_in_the_order_of_the_labels(keys: dict[str, Any], published: Any) -> None:
    assert parse_manifest(keys).words is None
    verbalizers = {"label-2": "maybe", "label-0": "no", "label-1": "yes"}
    keys = {**keys, "verbalizers": verbalizers}
    jsonschema.validate(keys, published)
    words = parse_manifest(keys).words
    assert words == verbalizers
    assert list(words) == ["label-0", "label-1", "label-2"]


@pytest.mark.parametrize("key", ["schema_version", "task", "backbone", "labels"])
def test_schema_and_library_require_the_same(
    key: str, keys: dict[str, Any], published: Any
) -> None:
    del keys[key]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(keys, published)
    with pytest.raises(ArtefactError) as refused:
        parse_manifest(keys)
    assert refused.value.field == key


def test_defaults_may_be_left_out(keys: dict[str, Any], published: Any) -> None:
    few = {name: keys[name] for name in ("schema_version", "task", "backbone", "labels")}
    jsonschema.validate(few, published)
    manifest = parse_manifest(few)
    assert (manifest.variant, manifest.length, manifest.layers) == ("addition", 1, "all")
    assert (manifest.template, manifest.max_length) == ("{text}", 512)
    assert manifest.injections == INFO.num_layers


def test_a_manifest_cannot_be_changed(keys: dict[str, Any]) -> None:
    manifest = parse_manifest(keys)
    with pytest.raises(ValueError, match="frozen"):
        manifest.task = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("a", True),
        ("9", True),
        ("a.b-c_d", True),
        ("a" * 63, True),
        ("a" * 64, False),
        ("", False),
        (".a", False),
        ("-a", False),
        ("a b", False),
        ("A", False),
        ("ä", False),
        ("a\n", False),
        ("a/b", False),
    ],
)
def test_task_names(name: str, allowed: bool, keys: dict[str, Any]) -> None:
    assert bool(TASK_NAME.fullmatch(name)) == allowed
    if allowed:
        assert parse_manifest({**keys, "task": name}).task == name
    else:
        with pytest.raises(ArtefactError) as refused:
            parse_manifest({**keys, "task": name})
        assert refused.value.field == "task"


def test_the_first_key_at_fault_is_named(keys: dict[str, Any]) -> None:
    with pytest.raises(ArtefactError) as refused:
        parse_manifest({**keys, "labels": 5, "max_length": "x"})
    assert refused.value.code == ArtefactFault.INVALID_LABELS
    assert refused.value.field == "labels"


@pytest.mark.parametrize(
    ("path", "record"),
    [
        ((), Manifest),
        (("backbone",), BackboneRef),
        (("training",), TrainingRecord),
        (("training", "splits"), Splits),
        (("golden", 0), Golden),
    ],
)
def test_an_unknown_key_is_told_beside_the_known_ones(
    path: tuple[Any, ...], record: type[Record]
) -> None:
    keys = parse(SHIPPED[0].read_bytes()).manifest.model_dump(mode="json")
    place = keys
    for part in path:
        place = place[part]
    place["colour"] = "red"
    with pytest.raises(ArtefactError) as refused:
        parse_manifest(keys)
    known = ", ".join(record.model_fields)
    field = ".".join(str(part) for part in (*path, "colour"))
    assert refused.value.message == f"The manifest's {field} is not valid: it is none of {known}."
    assert refused.value.field == field


def test_the_documentation_tells_all_keys_and_faults() -> None:
    text = (DOCS / "artefact-format.md").read_text()
    keys = re.findall(r"^\| `([a-z_]+)` \|", text, re.MULTILINE)
    assert [key for key in keys if key in Manifest.model_fields] == list(Manifest.model_fields)
    steps = re.findall(r"^\| (\d+) \| `([a-z_]+)` \|", text, re.MULTILINE)
    assert [int(number) for number, _ in steps] == list(range(1, len(steps) + 1))
    assert {code for _, code in steps} == set(ArtefactFault)


def test_the_parts_of_parsing_are_those_that_are_documented(keys: dict[str, Any]) -> None:
    """The checks can be made one by one, as other programs may want to."""
    capsule = random_capsule(INFO)
    data = dump(capsule)
    assert read_header(data).keys() >= {"__metadata__", "capsule"}
    check_manifest(capsule.manifest)
    check_tensors(capsule.manifest, capsule.tensors)
    check_backbone(capsule.manifest, capsule.manifest.backbone, INFO.max_tokens)
    assert parse(data).manifest == capsule.manifest
