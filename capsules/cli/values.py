"""What the texts of options mean."""

from capsules.cli.failure import UsageError

MAX_SHOWN = 100


def layer_choice(text: str) -> str | list[str]:
    """A name as it is, numbers one by one."""
    return text.split(",") if text[:1].isdigit() else text


def label_and_word(text: str) -> tuple[str, str]:
    """The two sides of ``LABEL=WORD``; the word holds no equals sign, the label may.

    Raises:
        UsageError: a side is missing.
    """
    label, _, word = text.rpartition("=")
    if not label or not word:
        raise UsageError(f"--word {shown(text)}: write LABEL=WORD, such as positive=good.")
    return label, word


def shown(value: object) -> str:
    """A value as it was given, or the beginning of a long one."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
