from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from service.api.jobs.form import End, FormReader, Part
from service.errors import BadRequest

TYPE = "multipart/form-data; boundary=edge"


def part(head: str, content: bytes) -> bytes:
    return b"--edge\r\n" + head.encode() + b"\r\n\r\n" + content + b"\r\n"


FORM = (
    part('Content-Disposition: form-data; name="spec"', b'{"task": "a"}')
    + part(
        'content-disposition: form-data; name=train; filename="r\u00f6ws.csv"\r\n'
        "Content-Type: Text/CSV; charset=utf-8",
        b"a\r\n--edg\r\n\r\n--edg",
    )
    + b"--edge--\r\n"
)
PARTS = [
    (Part("spec", None, ""), b'{"task": "a"}'),
    (Part("train", "r\u00f6ws.csv", "text/csv"), b"a\r\n--edg\r\n\r\n--edg"),
]


def read(chunks: Iterable[bytes], content_type: str = TYPE) -> list[tuple[Part, bytes]]:
    reader = FormReader(content_type)
    parts: list[tuple[Part, bytes]] = []
    for chunk in chunks:
        for piece in reader.feed(chunk):
            if isinstance(piece, Part):
                parts.append((piece, b""))
            elif isinstance(piece, bytes):
                parts[-1] = (parts[-1][0], parts[-1][1] + piece)
            else:
                assert piece == End()
    reader.finish()
    return parts


def test_a_form_is_its_parts() -> None:
    assert read([FORM]) == PARTS
    assert read([FORM + b"and what follows is nobody's affair"]) == PARTS


@given(st.lists(st.integers(0, len(FORM)), max_size=20))
def test_it_does_not_matter_how_it_comes(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(FORM)]
    chunks = [FORM[start:end] for start, end in pairwise(edges)]
    assert read(chunks) == PARTS


@pytest.mark.parametrize(
    ("content_type", "form", "reason"),
    [
        ("multipart/form-data", FORM, "no boundary"),
        ("multipart/form-data; boundary=", FORM, "no boundary"),
        ("multipart/form-data; boundary=" + "x" * 300, FORM, "boundary is too long"),
        (TYPE, b"", "cut short"),
        (TYPE, FORM[:-10], "cut short"),
        (TYPE, FORM[:40], "cut short"),
        (TYPE, b"no form at all", "not well-formed"),
        (TYPE, part("Content-Disposition: form-data", b"a"), "has no name"),
        (TYPE, part("Content-Type: text/csv", b"a"), "has no name"),
        (TYPE, part("X: " + "x" * 100_000, b"a"), "not well-formed"),
        (TYPE, part("\r\n".join(f"X{n}: x" for n in range(100)), b"a"), "not well-formed"),
        (TYPE, FORM.replace(b"\r\n", b"\n"), "not well-formed"),
    ],
)
def test_what_is_no_form(content_type: str, form: bytes, reason: str) -> None:
    with pytest.raises(BadRequest, match=reason) as caught:
        read([form], content_type)
    assert caught.value.code == "invalid_form"


@given(st.binary(max_size=200))
def test_nothing_else_comes_of_any_bytes(form: bytes) -> None:
    with pytest.raises(BadRequest):
        read([b"--edge\r\n" + form.replace(b"edge", b"")])
