"""Turns named inputs into the one text that is tokenised."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from string import Formatter

from capsules.errors import ArtefactError, ArtefactFault, InputError, InputFault

MAX_TEMPLATE_CHARACTERS = 4096


@dataclass(frozen=True)
class Template:
    """A format string with plain named fields, such as ``{premise} [and] {hypothesis}``.

    Only ``{name}`` is allowed: no positions, attributes, indices, conversions or format
    specifications, so a template can do nothing but join strings. ``{{`` and ``}}`` are braces.
    """

    source: str

    @cached_property
    def parts(self) -> tuple[tuple[str, str | None], ...]:
        """The literals, each with the field that follows it (None after the last).

        Raises:
            ArtefactError: the template is malformed or holds anything but plain fields.
        """
        if len(self.source) > MAX_TEMPLATE_CHARACTERS:
            raise invalid(f"is longer than {MAX_TEMPLATE_CHARACTERS} characters")
        try:
            parsed = list(Formatter().parse(self.source))
        except ValueError as error:
            raise invalid(f"is not a valid format string ({error})") from error
        parts: list[tuple[str, str | None]] = []
        for literal, name, specification, conversion in parsed:
            if name is not None and (not name.isidentifier() or specification or conversion):
                raise invalid(
                    f"has the field {{{name}}}, but a field is a plain name such as {{text}}"
                )
            parts.append((literal, name))
        if not any(name for _, name in parts):
            raise invalid("names no field")
        return tuple(parts)

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """The distinct field names, in order of first use."""
        return tuple(dict.fromkeys(name for _, name in self.parts if name))

    def render(self, inputs: Mapping[str, str]) -> str:
        """Fill in the fields.

        Raises:
            InputError: a field is missing, an input is not a field, or all inputs are blank.
        """
        for field in self.fields:
            if field not in inputs:
                wanted = ", ".join(self.fields)
                raise InputError(
                    f"The input {field!r} is missing; this task takes: {wanted}.",
                    code=InputFault.MISSING_INPUT,
                    field=field,
                )
        for name in inputs:
            if name not in self.fields:
                wanted = ", ".join(self.fields)
                raise InputError(
                    f"The input {name!r} is not known to this task; it takes: {wanted}.",
                    code=InputFault.UNEXPECTED_INPUT,
                    field=name,
                )
        if not any(value.strip() for value in inputs.values()):
            raise InputError(
                "The text is empty; send at least one character that is not white space.",
                code=InputFault.EMPTY_TEXT,
                field=self.fields[0],
            )
        return "".join(
            literal + (inputs[name] if name is not None else "") for literal, name in self.parts
        )


def invalid(reason: str) -> ArtefactError:
    """The error for a template that cannot be used, with the reason as its predicate."""
    return ArtefactError(
        f"The template {reason}. Write plain text with named fields, for example "
        "'premise: {premise} hypothesis: {hypothesis}'.",
        code=ArtefactFault.INVALID_TEMPLATE,
        field="template",
    )
