"""What a label may be, wherever it comes from."""

from unicodedata import category

# Control and format characters, and separators of lines, paragraphs and words.
INVISIBLE = frozenset({"Cc", "Cf", "Zl", "Zp", "Zs"})


def is_blank(label: str) -> bool:
    """Whether a label shows nothing to a person: white space, zero-width characters and the like."""
    for character in label:  # noqa: SIM110 - a generator for each of thousands of labels costs more
        if category(character) not in INVISIBLE:  # mostly the first
            return False
    return True
