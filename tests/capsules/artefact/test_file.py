import hashlib
import json
import pickle
import struct
import time
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings, strategies as st

from capsules.artefact.file import (
    MAX_HEADER_BYTES,
    METADATA_KEY,
    Capsule,
    digest,
    dump,
    parse,
    read,
)
from capsules.artefact.manifest import Golden, Manifest, Splits, TrainingRecord
from capsules.errors import ArtefactError, ArtefactFault, FileFault
from capsules.labels import is_blank
from tests.support.batches import VARIANTS
from tests.support.capsules import random_capsule
from tests.support.files import INFO, assemble, manifest_of, take_apart, with_manifest

characters = st.characters(exclude_categories=["Cs"])
labels = st.lists(
    st.text(characters, min_size=1, max_size=20).filter(lambda label: not is_blank(label)),
    min_size=2,
    max_size=6,
    unique=True,
)
numbers = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def capsules(draw: st.DrawFn) -> Capsule:
    names = draw(labels)
    capsule = random_capsule(
        INFO,
        task=draw(st.from_regex(r"[a-z0-9][a-z0-9._-]{0,62}", fullmatch=True)),
        labels=names,
        variant=draw(st.sampled_from(VARIANTS)),
        length=draw(st.integers(1, 4)),
        layers=draw(st.sampled_from(["all", "input", "odd", "latter-half", [1], [2], [1, 2]])),
        template=draw(st.sampled_from(["{text}", "{a} and {b}", "{{{text}}} é"])),
        max_length=draw(st.integers(8, 60)),
        seed=draw(st.integers(0, 100)),
        scale=draw(st.sampled_from([1e-40, 1e-3, 1.0, 1e30])),
    )
    fields = [name for name in ("text", "a", "b") if f"{{{name}}}" in capsule.manifest.template]
    probabilities = st.lists(st.floats(0, 1), min_size=len(names), max_size=len(names))
    golden = st.builds(
        Golden,
        inputs=st.fixed_dictionaries({name: st.text(characters) for name in fields}),
        label=st.sampled_from(names),
        probs=probabilities,
    )
    training = st.builds(
        TrainingRecord,
        data_digest=st.just("0" * 64),
        splits=st.just(Splits(train=3, validation=2)),
        seed=st.integers(0, 2**63),
        learning_rate=st.floats(1e-9, 10),
        metrics=st.dictionaries(st.text(characters), numbers),
        duration_seconds=st.floats(0, 1e6),
        library_versions=st.just({"torch": "2"}),
    )
    update = {
        "description": draw(st.text(characters, max_size=50)),
        "golden": draw(st.lists(golden, max_size=8)),
        "training": draw(st.none() | training),
    }
    return Capsule(capsule.manifest.model_copy(update=update), capsule.tensors)


def same(one: Capsule, other: Capsule) -> bool:
    return one.manifest == other.manifest and {
        name: (tensor.dtype, tensor.tolist()) for name, tensor in one.tensors.items()
    } == {name: (tensor.dtype, tensor.tolist()) for name, tensor in other.tensors.items()}


@given(capsules())
@settings(max_examples=60, deadline=None)
def test_a_capsule_survives_the_way_to_bytes_and_back(capsule: Capsule) -> None:
    data = dump(capsule)
    back = parse(data)
    assert same(back, capsule)
    assert dump(back) == data


def test_a_capsule_is_read_from_disk(tmp_path: Path, capsule: Capsule, good: bytes) -> None:
    (tmp_path / "task.safetensors").write_bytes(good)
    assert same(read(tmp_path / "task.safetensors"), capsule)
    with pytest.raises(ArtefactError) as refused:
        read(tmp_path / "other.safetensors")
    assert refused.value.code == FileFault.UNREADABLE


def test_other_libraries_read_the_file(capsule: Capsule, good: bytes) -> None:
    tensors = safetensors.torch.load(good)
    assert tensors.keys() == {"capsule", "head.weight", "head.bias"}
    assert torch.equal(tensors["capsule"], capsule.tensors["capsule"])
    assert manifest_of(good)["task"] == "task"


def test_equal_capsules_give_equal_bytes(capsule: Capsule, good: bytes) -> None:
    backwards = {name: capsule.tensors[name].clone() for name in reversed(list(capsule.tensors))}
    strided = {**backwards, "head.weight": backwards["head.weight"].T.contiguous().T}
    assert dump(Capsule(capsule.manifest, backwards)) == good
    assert dump(Capsule(capsule.manifest, strided)) == good
    assert digest(good) == hashlib.sha256(good).hexdigest()


def test_what_would_not_be_read_is_not_written(capsule: Capsule) -> None:
    reserved = capsule.manifest.model_copy(update={"task": "latest"})
    with pytest.raises(ArtefactError) as refused:
        dump(Capsule(reserved, capsule.tensors))
    assert refused.value.field == "task"
    with pytest.raises(ArtefactError) as refused:
        dump(Capsule(capsule.manifest, {"capsule": capsule.tensors["capsule"]}))
    assert refused.value.code == ArtefactFault.MISSING_TENSOR


def test_labels_that_outgrow_the_header_are_not_written() -> None:
    huge = [f"{number:05}" + "\N{GRINNING FACE}" * 250 for number in range(10_000)]
    with pytest.raises(ArtefactError, match=f"at most {MAX_HEADER_BYTES}") as refused:
        dump(random_capsule(INFO, labels=huge))
    assert refused.value.code == ArtefactFault.HEADER_TOO_LARGE


def refusal(data: bytes) -> ArtefactError:
    with pytest.raises(ArtefactError) as refused:
        parse(data)
    return refused.value


def zip_archive() -> bytes:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", b"x" * 100)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps({"capsule": list(range(100))}),
        pickle.dumps([0] * 100, protocol=0),
        zip_archive(),
        b"PK\x03\x04" + bytes(200),
        b"\x89PNG\r\n\x1a\n" + bytes(200),
        b"GGUF" + bytes(200),
        b"<!doctype html><title>Not found</title>",
        assemble([], b""),
        bytes(1000),
    ],
    ids=["pickle", "old-pickle", "torch-zip", "zip", "png", "gguf", "html", "list", "zeros"],
)
def test_other_formats_are_refused_by_name(data: bytes) -> None:
    error = refusal(data)
    assert error.code == ArtefactFault.NOT_SAFETENSORS
    assert "pickles and other formats are not accepted" in error.message


@pytest.mark.parametrize("size", range(10))
def test_too_few_bytes(good: bytes, size: int) -> None:
    error = refusal(good[:size])
    assert error.code == ArtefactFault.TOO_SMALL
    assert f"has {size} bytes" in error.message


@pytest.mark.parametrize("length", [MAX_HEADER_BYTES + 1, 2**31, 2**63, 2**64 - 1])
def test_a_header_that_claims_to_be_huge_is_not_read(good: bytes, length: int) -> None:
    error = refusal(struct.pack("<Q", length) + good[8:])
    assert error.code == ArtefactFault.HEADER_TOO_LARGE
    assert str(length) in error.message


def test_a_file_cut_anywhere_is_refused(good: bytes) -> None:
    codes = {refusal(good[:size]).code for size in range(len(good))}
    assert codes == {ArtefactFault.TOO_SMALL, ArtefactFault.TRUNCATED}


def test_bytes_after_the_tensors_are_refused(good: bytes) -> None:
    assert refusal(good + b"\0").code == ArtefactFault.INVALID_HEADER


Change = Callable[[dict[str, Any], bytes], bytes]


def entry(shape: list[int], offsets: list[int], dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def adding(name: str, value: object) -> Change:
    """The header with one more, or one other, entry."""
    return lambda header, body: assemble({**header, name: value}, body)


def empty(shape: list[int]) -> Change:
    """A tensor without elements at the end of the file."""
    return lambda header, body: assemble(
        {**header, "extra": entry(shape, [len(body), len(body)])}, body
    )


def raw(change: Callable[[str], str | bytes]) -> Change:
    """The header's text changed."""

    def apply(header: dict[str, Any], body: bytes) -> bytes:
        text = change(json.dumps(header))
        return assemble(text.encode() if isinstance(text, str) else text, body)

    return apply


HOSTILE_HEADERS: dict[str, Change] = {
    "not JSON": raw(lambda text: text[:-1]),
    "not UTF-8": raw(lambda text: text.encode("latin-1").replace(b"F32", b"F\xff2")),
    "UTF-16": raw(lambda text: text.encode("utf-16-le")),
    "two values": raw(lambda text: text + "{}"),
    "padded with NUL": raw(lambda text: text + "\0\0\0\0"),
    "many values": raw(lambda text: text[:-1] + ',"x":[' + "[]," * 70_000 + "1]}"),
    "many dimensions": adding("extra", entry([0] * 70_000, [172, 172])),
    "many tensors": lambda header, body: assemble(
        {**header, **{f"extra{number}": entry([0], [172, 172]) for number in range(10_000)}}, body
    ),
    "deep nesting": raw(lambda text: text[:-1] + ',"x":' + "[" * 100_000 + "]" * 100_000 + "}"),
    "endless number": raw(lambda text: text.replace("[0,", f"[{'9' * 5000},")),
    "a tensor twice": raw(
        lambda text: text[:-1] + ',"capsule":' + json.dumps(entry([4], [0, 16])) + "}"
    ),
    "metadata twice": raw(lambda text: text[:-1] + ',"__metadata__":{"capsule":"{}"}}'),
    "a key of an entry twice": raw(
        lambda text: text.replace('"dtype"', '"dtype": "F64", "dtype"', 1)
    ),
    "metadata is a number": adding("__metadata__", 5),
    "metadata is a list": adding("__metadata__", ["capsule"]),
    "manifest is a number": adding("__metadata__", {METADATA_KEY: 5}),
    "manifest is an object": adding("__metadata__", {METADATA_KEY: {}}),
    "entry is a string": adding("capsule", "tensor"),
    "entry is null": adding("capsule", None),
    "entry without offsets": adding("capsule", {"dtype": "F32", "shape": [2, 1, 8]}),
    "dtype unknown": adding("capsule", entry([2, 1, 8], [0, 64], "F31")),
    "dtype is a number": adding("capsule", entry([2, 1, 8], [0, 64], 32)),  # type: ignore[arg-type]
    "dtype that torch lacks": adding("extra", entry([0], [172, 172], "F4")),
    "shape is negative": adding("capsule", entry([2, 1, -8], [0, 64])),
    "shape is fractional": adding("capsule", entry([2, 1, 8.5], [0, 64])),  # type: ignore[list-item]
    "shape overflows": adding("capsule", entry([2**62, 4], [0, 64])),
    "shape is beyond 64 bits": adding("capsule", entry([2**80], [0, 64])),
    "shape does not fit the offsets": adding("capsule", entry([2, 1, 9], [0, 64])),
    "offsets overlap": adding("head.bias", entry([3], [0, 12])),
    "offsets leave a hole": adding("capsule", entry([2, 1, 7], [8, 64])),
    "offsets backwards": adding("capsule", entry([2, 1, 8], [64, 0])),
    "offsets negative": adding("capsule", entry([2, 1, 8], [-64, 0])),
    "offsets fractional": adding("capsule", entry([2, 1, 8], [0, 64.5])),  # type: ignore[list-item]
    "offsets of three": adding("capsule", entry([2, 1, 8], [0, 32, 64])),
    "empty with a size beyond 63 bits": empty([0, 2**63]),
    "empty with a size beyond 64 bits": empty([0, 2**64 - 1]),
    "empty with sizes that overflow": empty([0, 2**62, 2**62]),
}


@pytest.mark.parametrize("change", HOSTILE_HEADERS.values(), ids=HOSTILE_HEADERS.keys())
def test_a_hostile_header_is_refused(change: Change, good: bytes) -> None:
    error = refusal(change(*take_apart(good)))
    assert error.code == ArtefactFault.INVALID_HEADER
    assert error.message.startswith("The safetensors header is not ")
    assert error.message.endswith(".")
    assert "\n" not in error.message


@pytest.mark.parametrize("end", [2**40, 2**64, 2**200])
def test_tensors_that_end_after_the_file_are_a_file_cut_short(good: bytes, end: int) -> None:
    header, body = take_apart(good)
    header["capsule"]["data_offsets"] = [0, end]
    error = refusal(assemble(header, body))
    assert error.code == ArtefactFault.TRUNCATED
    assert f"take {end} bytes, and {len(body)} follow the header" in error.message


@pytest.mark.parametrize(
    "metadata", [None, {}, {"format": "pt"}, {"Capsule": "{}"}], ids=["null", "{}", "pt", "case"]
)
def test_a_safetensors_file_that_is_no_capsule(good: bytes, metadata: object) -> None:
    header, body = take_apart(good)
    error = refusal(assemble({**header, "__metadata__": metadata}, body))
    assert (error.code, error.field) == (ArtefactFault.MISSING_MANIFEST, METADATA_KEY)


def test_metadata_of_others_is_left_alone(capsule: Capsule, good: bytes) -> None:
    header, body = take_apart(good)
    header["__metadata__"]["format"] = "pt"
    assert same(parse(assemble(header, body)), capsule)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not JSON",
        "{}x",
        '{"task": "a", "task": "b"}',
        '{"max_length": ' + "9" * 5000 + "}",
        "[" * 100_000 + "]" * 100_000,
        "[]",
        '"task"',
        "null",
        "NaN",
    ],
    ids=lambda text: text[:20],
)
def test_a_manifest_that_is_no_object(good: bytes, text: str) -> None:
    error = refusal(with_manifest(good, text))
    assert (error.code, error.field) == (ArtefactFault.INVALID_MANIFEST, METADATA_KEY)
    assert error.message.startswith("The manifest is not ")


def test_the_manifest_is_checked_before_the_tensors(capsule: Capsule) -> None:
    manifest = capsule.manifest.model_dump(mode="json") | {"schema_version": 2, "later": True}
    data = safetensors.torch.save(
        {"later": torch.ones(1)}, metadata={METADATA_KEY: json.dumps(manifest)}
    )
    assert refusal(data).code == ArtefactFault.UNSUPPORTED_SCHEMA_VERSION


def test_tensors_are_not_loaded_for_a_manifest_that_is_refused(good: bytes) -> None:
    broken = adding("capsule", entry([2, 1, 7], [8, 64]))(*take_apart(good))
    assert refusal(broken).code == ArtefactFault.INVALID_HEADER
    unknown = with_manifest(broken, {**manifest_of(good), "variant": "telepathy"})
    assert refusal(unknown).code == ArtefactFault.UNSUPPORTED_VARIANT


def test_a_large_model_is_told_to_be_no_capsule() -> None:
    weights = {f"layer.{number}.weight": torch.ones(1) for number in range(2000)}
    assert refusal(safetensors.torch.save(weights)).code == ArtefactFault.MISSING_MANIFEST


@pytest.mark.parametrize(
    "extra",
    [
        ',"x":[' + "[]," * 2_700_000 + "1]",
        ',"training":{"metrics":{' + '"a":[],' * 1_000_000 + '"b":[]}}',
        ',"golden":[{"inputs":{},"label":"a","probs":[' + '"",' * 2_700_000 + '""]}]',
        ',"x":[' + "[]," * 130_000 + "1]",
        "," + ",".join(f'"{number}":[]' for number in range(130_000)),
        ',"golden":[{"inputs":{},"label":"a","probs":[' + '"",' * 130_000 + '""]}]',
        ',"layers":[' + "[]," * 130_000 + "1]",
    ],
    ids=["lists", "metrics", "probs", "fewer lists", "fewer keys", "fewer probs", "fewer layers"],
)
def test_no_manifest_takes_long_to_refuse(good: bytes, extra: str) -> None:
    keys = manifest_of(good)
    del keys["golden"], keys["training"], keys["layers"]
    data = with_manifest(good, json.dumps(keys)[:-1] + extra + "}")
    started = time.process_time()
    refusal(data)
    assert time.process_time() - started < 2


def test_the_most_labels_with_words_and_golden_answers_are_not_too_many_values() -> None:
    names = [str(number) for number in range(10_000)]
    golden = [Golden(inputs={"text": "a"}, label="7", probs=[1e-4] * 10_000) for _ in range(8)]
    capsule = random_capsule(INFO, labels=names)
    backbone = capsule.manifest.backbone.model_copy(update={"family": "encoder-decoder"})
    update = {"golden": golden, "verbalizers": dict.fromkeys(names, "a"), "backbone": backbone}
    manifest = capsule.manifest.model_copy(update=update)
    kept = Capsule(manifest, {"capsule": capsule.tensors["capsule"]})
    assert parse(dump(kept)).manifest == manifest


def test_manifest_and_tensors_are_not_shared_between_files(good: bytes) -> None:
    one, other = parse(good), parse(good)
    one.tensors["capsule"].fill_(0)
    assert other.tensors["capsule"].abs().max() > 0
    assert isinstance(one.manifest, Manifest)
