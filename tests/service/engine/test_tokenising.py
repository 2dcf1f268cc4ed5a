import pytest
from structlog.testing import capture_logs

from capsules.backbones.tokeniser import BRIEF_CHARACTERS, Tokeniser
from capsules.core import Encoding
from service.engine.records import RowRequest
from service.engine.tokenising import (
    KNOWN_CHARACTERS,
    TURN_CHARACTERS,
    TURN_ROWS,
    Encoder,
    is_quick,
    turns,
)
from service.errors import InternalError, ServiceError
from tests.support.backbones import words
from tests.support.requests import rows_for, served_as


class CountingTokeniser(Tokeniser):
    """Keeps what it was asked to encode."""

    def __init__(self, original: Tokeniser) -> None:
        super().__init__(original.truncating_to(1000), original.pad_id)
        self.asked: list[tuple[str, int]] = []

    def encode(self, texts, max_tokens):
        self.asked += [(text, max_tokens) for text in texts]
        return super().encode(texts, max_tokens)


@pytest.fixture
def tokeniser(loaded) -> CountingTokeniser:
    return CountingTokeniser(loaded.tokeniser)


@pytest.fixture
def encoder(tokeniser) -> Encoder:
    return Encoder(tokeniser)


def codes(answers: list[Encoding | ServiceError]) -> list[str | None]:
    return [answer.code if isinstance(answer, ServiceError) else None for answer in answers]


class TestTurns:
    def test_a_small_request_is_one_turn(self):
        assert list(turns(rows_for(served_as(), "a", "b"), [0, 1])) == [[0, 1]]

    def test_only_the_rows_asked_for_are_in(self):
        assert list(turns(rows_for(served_as(), "a", "b", "c"), [0, 2])) == [[0, 2]]

    def test_many_rows_are_cut_by_their_number(self):
        rows = rows_for(served_as(), *["a"] * (TURN_ROWS + 1))
        assert [len(turn) for turn in turns(rows, range(len(rows)))] == [TURN_ROWS, 1]

    def test_long_texts_are_cut_by_their_length(self):
        rows = rows_for(served_as(), "a" * TURN_CHARACTERS, "b", "c" * TURN_CHARACTERS, "d")
        assert list(turns(rows, range(4))) == [[0], [1, 2], [3]]

    def test_what_counts_is_the_text_in_its_template(self):
        tripling = served_as(template="{text}{text}{text}")
        rows = rows_for(tripling, *["a" * (TURN_CHARACTERS // 3 + 1)] * 3)
        assert list(turns(rows, range(3))) == [[0], [1], [2]]
        long = served_as(template="x" * 4000 + "{text}")
        rows = rows_for(long, *["a"] * 34)
        assert [len(turn) for turn in turns(rows, range(34))] == [17, 17]

    def test_inputs_that_are_missing_or_no_fields_are_no_text(self):
        row = RowRequest(served_as(template="{a}{b}"), {"a": "x", "c": "y" * TURN_CHARACTERS})
        assert list(turns([row, row], range(2))) == [[0, 1]]

    def test_no_rows_are_no_turns(self):
        assert list(turns([], [])) == []


class TestQuick:
    def test_one_short_text_is(self):
        assert is_quick(rows_for(served_as(), "a" * BRIEF_CHARACTERS))

    def test_more_than_one_or_a_long_one_is_not(self):
        assert not is_quick(rows_for(served_as(), "a", "b"))
        assert not is_quick(rows_for(served_as(), "a" * (BRIEF_CHARACTERS + 1)))
        long = served_as(template="x" * BRIEF_CHARACTERS + "{text}")
        assert not is_quick(rows_for(long, "a"))


class TestEncoding:
    def test_the_template_is_rendered_and_tokenised(self, encoder, tokeniser, loaded):
        capsule = served_as(template="{a} w1 {b}")
        (encoding,) = encoder.encode([RowRequest(capsule, {"a": "w0", "b": "w2"})])
        assert tokeniser.asked == [("w0 w1 w2", 64)]
        assert encoding == loaded.tokeniser.encode([words(3)], 64)[0]

    def test_the_same_text_at_the_same_length_is_tokenised_once(self, encoder, tokeniser):
        rows = [
            *rows_for(served_as("one"), "w1", "w2", "w1"),
            *rows_for(served_as("two"), "w1"),
            *rows_for(served_as("short", max_tokens=8), "w1"),
        ]
        answers = encoder.encode(rows)
        assert encoder.encode(rows[:2]) == answers[:2]
        assert tokeniser.asked == [("w1", 64), ("w2", 64), ("w1", 8)]

    def test_many_long_texts_are_not_all_kept(self, encoder, tokeniser, monkeypatch):
        asked = []

        def one_token(texts, max_tokens):
            asked.extend(texts)
            return [Encoding(input_ids=(1,), truncated=False) for _ in texts]

        monkeypatch.setattr(tokeniser, "encode", one_token)
        text = "a" * 100_000
        for number in range(100):
            row = RowRequest(served_as(template=f"{number} {{text}}"), {"text": text})
            assert codes(encoder.encode([row]) + encoder.encode([row])) == [None, None]
            kept = sum(len(known) for known, _ in encoder.known)
            assert kept <= KNOWN_CHARACTERS + 2 * len(text)
        assert len(asked) < 110

    def test_a_long_text_is_cut_or_refused_as_its_row_asks(self, encoder):
        capsule = served_as(max_tokens=8)
        rows = [
            *rows_for(capsule, words(20)),
            *rows_for(capsule, words(20), words(6), truncate=False),
        ]
        cut, refused, fitting = encoder.encode(rows)
        assert (len(cut.input_ids), cut.truncated) == (8, True)
        assert (refused.status, refused.code, refused.field) == (422, "text_too_long", "text")
        assert "8 tokens" in refused.detail
        assert (len(fitting.input_ids), fitting.truncated) == (8, False)

    def test_bad_rows_are_refused_one_by_one(self, encoder):
        capsule = served_as()
        rows = [
            *rows_for(capsule, "w1", " \n", "\ud800", "w2"),
            RowRequest(capsule, {}),
            RowRequest(capsule, {"text": "w1", "more": "w2"}),
        ]
        answers = encoder.encode(rows)
        assert codes(answers) == [
            None,
            "empty_text",
            "invalid_text",
            None,
            "missing_input",
            "unexpected_input",
        ]

    @pytest.mark.parametrize("text", ["\x00", "\u202e\u05d0", "\N{GRINNING FACE}" * 50, "x" * 5000])
    def test_odd_texts_are_texts(self, encoder, text):
        assert codes(encoder.encode(rows_for(served_as(), text))) == [None]

    def test_a_text_without_any_token_is_refused(self, encoder, tokeniser, monkeypatch):
        def nothing(texts, max_tokens):
            return [Encoding(input_ids=(), truncated=False) for _ in texts]

        monkeypatch.setattr(tokeniser, "encode", nothing)
        assert codes(encoder.encode(rows_for(served_as(), "\u200b"))) == ["empty_text"]

    @pytest.mark.parametrize("fault", [RuntimeError("boom"), SystemExit(1)])
    def test_a_tokeniser_that_breaks_fails_the_rows_and_says_so(
        self, encoder, tokeniser, monkeypatch, fault
    ):
        def broken(texts, max_tokens):
            raise fault

        monkeypatch.setattr(tokeniser, "encode", broken)
        with capture_logs() as logs:
            answers = encoder.encode(rows_for(served_as(), "a secret", "w2"))
        assert codes(answers) == ["tokenising_failed"] * 2
        assert all(isinstance(answer, InternalError) for answer in answers)
        assert [entry["event"] for entry in logs] == ["tokenising_failed"]
        assert logs[0]["exc_info"] is fault
        assert "secret" not in str(logs)
