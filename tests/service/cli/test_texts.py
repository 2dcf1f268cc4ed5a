import io

import pytest
from hypothesis import given, strategies as st

from capsules.cli.failure import UsageError
from service.cli.texts import Unreadable, batches, inputs_from, items_from, lines_of, size_of

ITEMS = st.lists(
    st.one_of(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
        st.dictionaries(st.sampled_from(["a", "b"]), st.just("é" * 5), min_size=1),
        st.just(Unreadable("invalid_json", "No.")),
    )
)


@given(items=ITEMS, rows=st.integers(1, 5), size=st.integers(1, 60))
def test_batches_hold_everything_in_order_within_their_limits(items, rows, size):
    found = list(batches(items, rows=rows, size=size))
    assert [item for batch in found for item in batch] == items
    for batch in found:
        assert 1 <= len(batch) <= rows
        assert len(batch) == 1 or sum(map(size_of, batch)) <= size


def test_a_full_batch_does_not_wait_for_the_next_text():
    def endless():
        yield "one"
        yield "two"
        pytest.fail("read on")

    assert next(batches(endless(), rows=2, size=100)) == ["one", "two"]


def test_lines_lose_their_ends_only():
    stream = io.BytesIO(b"one\r\n\n  two \nthree\xff\nlast")
    assert list(lines_of(stream)) == ["one", "", "  two ", "three\udcff", "last"]


def test_of_a_long_line_only_so_much_is_kept(monkeypatch):
    monkeypatch.setattr("service.cli.texts.MAX_LINE_BYTES", 4)
    lines = [b"1234\n", b"12345\n", b"x" * 50 + b"\n", b"ok\r\n", b"y" * 9]
    found = list(lines_of(io.BytesIO(b"".join(lines))))
    assert [item if isinstance(item, str) else item.code for item in found] == [
        "1234",
        "text_too_long",
        "text_too_long",
        "ok",
        "text_too_long",
    ]


def test_texts_stay_as_they_are():
    assert list(items_from(["a", '{"a": 1}', ""], as_json=False)) == ["a", '{"a": 1}', ""]


@pytest.mark.parametrize("as_json", [False, True])
def test_what_is_not_utf8_is_told(as_json):
    (item,) = items_from(["x\udcff"], as_json=as_json)
    assert isinstance(item, Unreadable)
    assert item.code == "invalid_text"


def test_json_is_a_string_or_an_object_of_strings():
    lines = ['"one"', '{"premise": "a", "claim": "b"}', '"\\u00e9"']
    assert list(items_from(lines, as_json=True)) == ["one", {"premise": "a", "claim": "b"}, "é"]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("", "invalid_json"),
        ("plain", "invalid_json"),
        ('"\\ud800"', "invalid_json"),
        ("1", "invalid_value"),
        ("null", "invalid_value"),
        ('["a"]', "invalid_value"),
        ('{"a": 1}', "invalid_value"),
        ('{"a": {"b": "c"}}', "invalid_value"),
    ],
)
def test_other_json_is_told(line, code):
    (item,) = items_from([line], as_json=True)
    assert isinstance(item, Unreadable)
    assert item.code == code


def test_named_inputs():
    assert inputs_from(["premise=a=b", "claim="]) == {"premise": "a=b", "claim": ""}


@pytest.mark.parametrize("pairs", [["premise"], ["=x"], ["a=1", "a=2"], ["a=\udcff"]])
def test_malformed_named_inputs_are_refused(pairs):
    with pytest.raises(UsageError, match="--input"):
        inputs_from(pairs)
