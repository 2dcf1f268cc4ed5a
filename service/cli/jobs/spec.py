"""What a job is asked to do, from the command line; the server checks it, and has the defaults."""

import csv
from collections.abc import Mapping, Sequence
from typing import Any

from capsules.cli.data import limits_from
from capsules.cli.failure import UsageError
from capsules.cli.values import label_and_word, layer_choice, shown


def spec_from(options: Mapping[str, Any]) -> dict[str, Any]:
    """The spec of a job, of the options that were given.

    Args:
        options: by name in the spec, as they are on the command line; None where one was not given.

    Raises:
        UsageError: the text of one means nothing.
        OptionError: `max_bad_rows` is out of range.
    """
    spec = {name: value for name, value in options.items() if value is not None}
    for name, read in READERS.items():
        if name in spec:
            spec[name] = read(spec[name])
    return spec


def layers_from(text: str) -> str | Sequence[int | str]:
    """A choice of layers by its name, or the numbers of layers."""
    choice = layer_choice(text)
    if isinstance(choice, str):
        return choice
    # What is no number is for the server to refuse.
    return [int(one) if one.strip().isdecimal() else one for one in choice]


def labels_from(text: str) -> list[str]:
    """Labels separated by commas; one that holds a comma is quoted.

    Raises:
        UsageError: the quotes do not match.
    """
    try:
        (labels,) = csv.reader([text], strict=True)
    except (csv.Error, ValueError) as error:
        raise UsageError(
            f"--labels {shown(text)}: write one line of CSV, such as 'spam,\"no, thanks\"'."
        ) from error
    return labels


def words_from(pairs: Sequence[str]) -> dict[str, str]:
    """Words by label.

    Raises:
        UsageError: one is not of the form LABEL=WORD.
    """
    return dict(label_and_word(pair) for pair in pairs)


def metadata_from(pairs: Sequence[str]) -> dict[str, str]:
    """Notes by name; a note may hold an equals sign, its name may not.

    Raises:
        UsageError: one is not of the form KEY=VALUE, or is repeated.
    """
    notes: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise UsageError(f"--metadata {shown(pair)}: write KEY=VALUE, such as team=support.")
        if name in notes:
            raise UsageError(f"--metadata names {shown(name)} more than once; leave one.")
        notes[name] = value
    return notes


def bad_rows_from(text: str) -> int | float | None:
    """A count, or a fraction where there is a point.

    Raises:
        UsageError: it is no number.
        OptionError: it is out of range.
    """
    return limits_from(text).max_bad_rows


READERS = {
    "layers": layers_from,
    "labels": labels_from,
    "verbalizers": words_from,
    "metadata": metadata_from,
    "max_bad_rows": bad_rows_from,
}
