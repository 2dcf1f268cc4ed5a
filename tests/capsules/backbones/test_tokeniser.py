from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings, strategies as st
from transformers import AutoTokenizer

from capsules.backbones.base import LoadedBackbone
from capsules.backbones.tokeniser import BRIEF_CHARACTERS, Tokeniser
from capsules.core import MAX_LABEL_CHARACTERS
from capsules.errors import InputError, InputFault
from tests.support.backbones import tiny_tokenizer, words

CLS, SEP = "[CLS]", "[SEP]"


@pytest.fixture(scope="module")
def tokeniser() -> Tokeniser:
    tokenizer = tiny_tokenizer()
    return Tokeniser(tokenizer.backend_tokenizer, pad_id=tokenizer.pad_token_id)


def ids(*pieces: str) -> tuple[int, ...]:
    vocabulary = tiny_tokenizer().get_vocab()
    return tuple(vocabulary[piece] for piece in pieces)


def test_special_tokens_are_put_around(tokeniser: Tokeniser) -> None:
    assert tokeniser.special_tokens == 2
    (encoding,) = tokeniser.encode(["w3 w7"], 16)
    assert encoding.input_ids == ids(CLS, "w3", "w7", SEP)
    assert not encoding.truncated


@pytest.mark.parametrize(("count", "truncated"), [(5, False), (6, False), (7, True), (500, True)])
def test_a_text_is_cut_to_the_limit_special_tokens_included(
    tokeniser: Tokeniser, count: int, truncated: bool
) -> None:
    (encoding,) = tokeniser.encode([words(count)], 8)
    kept = min(count, 6)
    assert encoding.truncated == truncated
    assert encoding.input_ids == ids(CLS, *words(kept).split(), SEP)


def test_texts_are_cut_one_by_one(tokeniser: Tokeniser) -> None:
    encodings = tokeniser.encode([words(9), words(2), "", words(4)], 6)
    assert [len(encoding.input_ids) for encoding in encodings] == [6, 4, 2, 6]
    assert [encoding.truncated for encoding in encodings] == [True, False, False, False]


def test_no_texts_give_no_encodings(tokeniser: Tokeniser) -> None:
    assert tokeniser.encode([], 8) == []


@pytest.mark.parametrize("limit", [3, 4])
def test_the_smallest_limits_leave_the_special_tokens(tokeniser: Tokeniser, limit: int) -> None:
    (encoding,) = tokeniser.encode([words(9)], limit)
    assert encoding.input_ids == ids(CLS, *words(limit - 2).split(), SEP)


def test_limits_do_not_disturb_each_other(tokeniser: Tokeniser) -> None:
    for limit in (4, 9, 4, 6, 9):
        assert len(tokeniser.encode([words(50)], limit)[0].input_ids) == limit


def test_the_tokenizer_given_is_left_as_it_is() -> None:
    backend = tiny_tokenizer().backend_tokenizer
    backend.enable_truncation(max_length=3)
    backend.enable_padding(length=12)
    copy = Tokeniser(backend, pad_id=0)
    assert len(copy.encode([words(9)], 30)[0].input_ids) == 11
    assert len(copy.encode([words(1)], 30)[0].input_ids) == 3
    assert backend.truncation is not None
    assert backend.truncation["max_length"] == 3
    assert backend.padding is not None
    assert backend.padding["length"] == 12


def test_many_threads_with_many_limits_at_once(tokeniser: Tokeniser) -> None:
    limits = [3 + number % 17 for number in range(400)]
    texts = [words(number % 30, number) for number in range(400)]
    alone = [tokeniser.encode([text], limit) for text, limit in zip(texts, limits, strict=True)]
    fresh = Tokeniser(tiny_tokenizer().backend_tokenizer, pad_id=0)
    with ThreadPoolExecutor(8) as pool:
        together = list(
            pool.map(lambda one: fresh.encode([one[0]], one[1]), zip(texts, limits, strict=True))
        )
    assert together == alone


def test_a_word_has_no_special_tokens_and_is_not_cut(tokeniser: Tokeniser) -> None:
    assert tokeniser.word("w3") == ids("w3")
    assert tokeniser.word("w3 W7") == ids("w3", "w7")
    assert tokeniser.word("no") == ids("n", "##o")
    longest = "x" * MAX_LABEL_CHARACTERS
    assert tokeniser.word(" ".join(longest)) == ids(*["x"] * MAX_LABEL_CHARACTERS)


@pytest.mark.parametrize("text", ["", " ", "\u200b"])
def test_a_word_of_nothing_has_no_tokens(tokeniser: Tokeniser, text: str) -> None:
    assert tokeniser.word(text) == ()


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "ok \udc80"])
def test_half_a_surrogate_pair_is_refused(tokeniser: Tokeniser, text: str) -> None:
    place = next(place for place, one in enumerate(text) if "\ud800" <= one <= "\udfff")
    with pytest.raises(InputError, match=f"at character {place}") as refused:
        tokeniser.encode(["w1", text], 8)
    assert (refused.value.code, refused.value.field) == (InputFault.INVALID_TEXT, "text")


TINY = Tokeniser(tiny_tokenizer().backend_tokenizer, pad_id=0)
AROUND = ids(CLS, SEP)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=4), st.integers(3, 20))
@settings(max_examples=100, deadline=None)
def test_any_unicode_is_tokenised(texts: list[str], limit: int) -> None:
    encodings = TINY.encode(texts, limit)
    assert len(encodings) == len(texts)
    for encoding in encodings:
        assert 2 <= len(encoding.input_ids) <= limit
        assert (encoding.input_ids[0], encoding.input_ids[-1]) == AROUND
        assert not encoding.truncated or len(encoding.input_ids) == limit


@pytest.mark.parametrize(
    "text",
    [
        "\N{GRINNING FACE}",
        "שלום עולם",
        "a\0b",
        "\u202eabc",
        "e\u0301",
        "a long text " * 20_000,
        "[PAD] [CLS] w1",
    ],
    ids=["emoji", "right-to-left", "nul", "override", "combining", "long", "special"],
)
def test_the_embedded_tokeniser_agrees_with_transformers(
    embedded: LoadedBackbone, text: str
) -> None:
    expected = AutoTokenizer.from_pretrained(embedded.info.path)(
        text, truncation=True, max_length=64
    )["input_ids"]
    (encoding,) = embedded.tokeniser.encode([text], 64)
    assert list(encoding.input_ids) == expected
    assert encoding.truncated == (len(text) > 1000)


@pytest.mark.parametrize(
    "characters", [BRIEF_CHARACTERS - 1, BRIEF_CHARACTERS, BRIEF_CHARACTERS + 1]
)
def test_a_text_alone_is_tokenised_as_among_others(tokeniser: Tokeniser, characters: int) -> None:
    text = ("the river bank " * characters)[:characters]
    alone = tokeniser.encode([text], 40)
    assert alone == tokeniser.encode([text, "another"], 40)[:1]
    assert alone[0].truncated
    assert len(alone[0].input_ids) == 40
