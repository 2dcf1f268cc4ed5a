"""Labelled rows that a capsule learns in two epochs, written for the tests."""

from pathlib import Path

from tests.support.rows import as_jsonl

CITIES = ("Oslo", "Lima", "Cairo")
SENTENCES = {
    "weather": ("Will it {} in {}?", ("rain", "snow", "freeze", "hail"), CITIES),
    "travel": ("Book a {} to {}.", ("train", "flight", "ferry", "bus"), CITIES),
    "food": ("How do I {} {}?", ("bake", "grill", "roast", "fry"), ("bread", "carrots", "fish")),
}
ENDINGS = ("", " Thanks")


def toy_rows() -> list[dict[str, str]]:
    """72 rows of three labels, as many of each."""
    return [
        {"text": sentence.format(first, second) + ending, "label": label}
        for ending in ENDINGS
        for label, (sentence, firsts, seconds) in SENTENCES.items()
        for first in firsts
        for second in seconds
    ]


def toy_file(folder: Path, name: str = "rows.jsonl") -> Path:
    """The rows as a file."""
    path = folder / name
    path.write_bytes(as_jsonl(toy_rows()))
    return path
