"""What a row must hold: the named inputs and a label. Knows nothing of file formats."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from capsules.core import MAX_LABEL_CHARACTERS, Example
from capsules.data.base import MISSING, RowProblem
from capsules.errors import OptionError
from capsules.labels import is_blank

# The field limit of the standard library's CSV reader, held for every format so that the same rows
# are accepted from each.
MAX_FIELD_CHARACTERS = 131_072


@dataclass(frozen=True, slots=True)
class RawRow:
    """A row as parsed from a file, not yet checked.

    Attributes:
        line: number of the physical line, from 1, where the row starts.
        values: column or key to value.
    """

    line: int
    values: Mapping[str, object]


@dataclass(frozen=True)
class RowSchema:
    """The fields a row must have.

    Attributes:
        fields: names of the inputs, each a non-empty string.
        label_field: name of the label: a non-empty string, an integer or a boolean.
        labels: the allowed labels, or None for any.

    Raises:
        OptionError: names or labels are empty, repeated, padded with space, or the same.
    """

    fields: tuple[str, ...]
    label_field: str = "label"
    labels: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        require_distinct(self.fields, option="fields")
        if self.label_field in self.fields:
            raise OptionError(
                f"{self.label_field!r} is both an input and the label; name another label_field.",
                field="label_field",
            )
        if self.labels is not None:
            require_distinct(self.labels, option="labels")

    @cached_property
    def allowed(self) -> frozenset[str] | None:
        """The labels as a set, or None for any."""
        return None if self.labels is None else frozenset(self.labels)

    def parse(self, row: RawRow) -> Example | RowProblem:
        """The row as an example, or the first thing wrong with it.

        Inputs are kept as they are. Labels lose surrounding whitespace; an integer or a boolean
        becomes its JSON spelling.
        """
        label, reason = self.parse_label(row.values.get(self.label_field))
        if reason is None:
            for name in self.fields:
                if reason := input_fault(name, row.values.get(name)):
                    break
        if reason is not None:
            return RowProblem(row.line, reason)
        # Values passed the check above, so they are strings.
        return Example({name: str(row.values[name]) for name in self.fields}, sys.intern(label))

    def parse_label(self, value: object) -> tuple[str, str | None]:
        """The label as text and the reason it is refused, or None."""
        name = self.label_field
        if isinstance(value, bool):
            value = "true" if value else "false"
        elif isinstance(value, int):
            value = str(value)
        if value is None:
            return "", f"no label: field {name!r} {MISSING}"
        if not isinstance(value, str):
            return "", f"label {name!r} is {json_type(value)}, not a string, integer or boolean"
        label = value.strip()
        if is_blank(label):
            return label, f"no label: field {name!r} is empty"
        if len(label) > MAX_LABEL_CHARACTERS:
            return label, (
                f"label {name!r} has {len(label):,} characters; at most {MAX_LABEL_CHARACTERS}"
            )
        if not is_unicode(label):
            return label, f"label {name!r} is not valid UTF-8"
        if self.allowed is not None and label not in self.allowed:
            return label, f"label {label!r} is not one of the {len(self.allowed)} labels given"
        return label, None


def input_fault(name: str, value: object) -> str | None:
    """Why `value` cannot be the input `name`, or None."""
    if value is None:
        return f"field {name!r} {MISSING}"
    if not isinstance(value, str):
        return f"field {name!r} is {json_type(value)}, not a string"
    if not value or value.isspace():
        return f"field {name!r} is empty"
    if len(value) > MAX_FIELD_CHARACTERS:
        return f"field {name!r} has {len(value):,} characters; at most {MAX_FIELD_CHARACTERS:,}"
    if not is_unicode(value):
        return f"field {name!r} is not valid UTF-8"
    return None


def is_unicode(text: str) -> bool:
    """Whether `text` is free of lone surrogates, which stand for bytes that were not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def json_type(value: object) -> str:
    """The JSON name of a parsed value's type, with its article."""
    match value:
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case list():
            return "an array"
        case dict():
            return "an object"
        case None:
            return "null"
        case _:
            return "a string"


def require_distinct(names: Sequence[str], *, option: str) -> None:
    """Refuse an empty list, a repeated name, or one that is empty or has space around it.

    Raises:
        OptionError: naming `option`.
    """
    if not names:
        raise OptionError(f"{option} is empty; give at least one name.", field=option)
    for name in names:
        if is_blank(name) or name != name.strip():
            raise OptionError(
                f"{option} has {name!r}; a name is not empty and has no space around it.",
                field=option,
            )
    if len(set(names)) != len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise OptionError(f"{option} has {repeated!r} more than once; leave one.", field=option)
