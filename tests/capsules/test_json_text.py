import json
import time
from typing import Any

import pytest
from hypothesis import given, strategies as st

from capsules.json_text import count_values, holds_more

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('ab"\\,[{é\n'),
    lambda inner: (
        st.lists(inner, min_size=1) | st.dictionaries(st.text('a"\\,'), inner, min_size=1)
    ),
    max_leaves=30,
)


def number_of_values(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(number_of_values, inner))


@given(values, st.booleans(), st.sampled_from([None, 1]))
def test_values_are_counted_as_a_parser_would(value: Any, ascii_only: bool, indent: Any) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    assert count_values(text) == number_of_values(value)
    assert holds_more(text, number_of_values(value) - 1)
    assert not holds_more(text, number_of_values(value))


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (b"1", 1),
        (b"[]", 2),
        (b"{}", 2),
        (b'"[{,,,"', 1),
        (b'["\\\\","\\\\\\"[",1]', 4),
        (b'{"a":[1,2],"b":{"c":"\\"{"}}', 6),
    ],
)
def test_an_empty_collection_counts_as_if_it_held_one(text: bytes, count: int) -> None:
    assert count_values(text) == count


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 4_000_000,
        b"[]," * 1_400_000,
        b'"a",' * 1_000_000,
        b'"' + b'\\"' * 2_000_000,
        b"\\" * 4_000_001,
        b'"\\\\' * 1_300_000,
        b"\xff" * 4_000_000,
    ],
    ids=lambda text: repr(text[:6]),
)
def test_no_text_takes_long(text: bytes) -> None:
    started = time.process_time()
    holds_more(text, 1000)
    assert time.process_time() - started < 1
