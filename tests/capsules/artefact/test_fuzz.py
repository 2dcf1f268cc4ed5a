"""Whatever the bytes, a file is read or refused; nothing else comes out of the parser."""

import pytest
from hypothesis import given, settings, strategies as st

from capsules.artefact.file import dump, parse
from capsules.artefact.manifest import Manifest
from capsules.errors import ArtefactError, ArtefactFault
from tests.support.capsules import random_capsule
from tests.support.files import INFO, assemble, manifest_of, take_apart, with_manifest

GOOD = dump(random_capsule(INFO))
KEYS = sorted(Manifest.model_fields)

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(2**60, 2**70)
    | st.floats()
    | st.text(st.characters(), max_size=10)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=10) | st.sampled_from(KEYS), inner, max_size=3)
    ),
    max_leaves=8,
)


def read_or_refuse(data: bytes) -> None:
    refused: ArtefactError | None = None
    try:
        parse(data)
    except ArtefactError as error:
        refused = error
    if refused is not None:
        assert refused.code in set(ArtefactFault)
        assert refused.message.endswith(".")


@given(st.binary(max_size=300))
@settings(max_examples=150, deadline=None)
def test_random_bytes(data: bytes) -> None:
    read_or_refuse(data)


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_bytes_changed_at_a_few_places(data: st.DataObject) -> None:
    changed = bytearray(GOOD)
    places = st.integers(0, len(GOOD) - 1) | st.integers(0, 20)
    for place in data.draw(st.lists(places, min_size=1, max_size=4)):
        changed[place] = data.draw(st.integers(0, 255))
    read_or_refuse(bytes(changed))


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_a_piece_removed_repeated_or_put_in(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(GOOD)))
    end = data.draw(st.integers(start, min(len(GOOD), start + 40)))
    put = data.draw(st.sampled_from([b"", GOOD[start:end] * 2]) | st.binary(max_size=20))
    read_or_refuse(GOOD[:start] + put + GOOD[end:])


@given(values)
@settings(max_examples=150, deadline=None)
def test_any_header(header: object) -> None:
    read_or_refuse(assemble(header, bytes(16)))


@given(st.sampled_from(["capsule", "head.bias", "extra", "__metadata__"]), values)
@settings(max_examples=150, deadline=None)
def test_any_entry_in_a_header_that_is_otherwise_in_order(name: str, value: object) -> None:
    header, body = take_apart(GOOD)
    read_or_refuse(assemble({**header, name: value}, body))


@given(
    st.sampled_from(["dtype", "shape", "data_offsets"]),
    st.lists(st.integers(-2, 200) | st.integers(), max_size=4)
    | st.sampled_from(["F64", "F16", "BF16", "I8", "BOOL", "F8_E4M3", "F4", "C64", "U64"]),
)
@settings(max_examples=200, deadline=None)
def test_any_type_shape_and_offsets(key: str, value: object) -> None:
    header, body = take_apart(GOOD)
    header["capsule"][key] = value
    read_or_refuse(assemble(header, body))


@given(st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), values, max_size=3))
@settings(max_examples=300, deadline=None)
def test_any_values_in_a_manifest_that_is_otherwise_in_order(changes: dict[str, object]) -> None:
    read_or_refuse(with_manifest(GOOD, {**manifest_of(GOOD), **changes}))


@given(st.text(max_size=50))
@settings(max_examples=100, deadline=None)
def test_any_manifest_text(text: str) -> None:
    with pytest.raises(ArtefactError):
        parse(with_manifest(GOOD, text))
