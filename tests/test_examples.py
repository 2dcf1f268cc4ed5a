"""The example data is what its README says."""

from pathlib import Path

import pytest

from capsules.data.base import Dataset
from capsules.data.reader import load

TICKETS = Path(__file__).resolve().parent.parent / "examples" / "support_tickets.jsonl"


@pytest.fixture(scope="module")
def tickets() -> Dataset:
    return load(TICKETS, fields=["text"])


def texts(rows: Dataset) -> list[str]:
    return [row.inputs["text"] for row in rows]


def test_every_line_is_a_usable_row(tickets):
    assert tickets.bad_rows == 0
    assert len(tickets) == len(TICKETS.read_text(encoding="utf-8").splitlines()) == 300


def test_labels_are_balanced(tickets):
    assert tickets.counts() == dict.fromkeys(
        ["account", "billing", "feedback", "returns", "shipping", "technical"], 50
    )


def test_no_text_repeats(tickets):
    found = texts(tickets)
    assert len(set(found)) == len(found)
    assert len({" ".join(text.casefold().split()) for text in found}) == len(found)


def test_texts_are_the_length_of_a_message(tickets):
    assert [text for text in texts(tickets) if not 5 <= len(text.split()) <= 40] == []


def test_texts_have_no_space_around_them(tickets):
    assert [text for text in texts(tickets) if text != text.strip()] == []


def test_rows_are_shuffled(tickets):
    """A file sorted by label would hide labels from whoever takes its first rows."""
    assert {row.label for row in tickets.examples[:60]} == set(tickets.labels)
