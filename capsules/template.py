"""Turns named inputs into the one text that is tokenised."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from string import Formatter

from capsules.errors import ArtefactError, ArtefactFault, InputError, InputFault

MAX_TEMPLATE_CHARACTERS = 4096
# A text may be wanted at both ends of a prompt, but not multiplied without bound.
MAX_USES = 8


@dataclass(frozen=True)
class Template:
    """A format string with plain named fields, such as ``{premise} [and] {hypothesis}``.

    Only ``{name}`` is allowed: no positions, attributes, indices, conversions or format
    specifications, so a template can do nothing but join strings. ``{{`` and ``}}`` are braces. A
    field may come up to `MAX_USES` times.
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
        position = 0
        for literal, name, _, _ in parsed:
            # Braces are doubled where they stand for themselves.
            position += len(literal) + literal.count("{") + literal.count("}")
            if name is not None:
                # An empty specification is only to be seen in the source.
                plain = f"{{{name}}}"
                if not name.isidentifier() or not self.source.startswith(plain, position):
                    written = self.source[position : self.source.find("}", position) + 1]
                    raise invalid(
                        f"has the field {written}, but a field is a plain name such as {{text}}"
                    )
                position += len(plain)
            parts.append((literal, name))
        return tuple(parts)

    @cached_property
    def uses(self) -> Mapping[str, int]:
        """The distinct field names, in order of first use, and how often each comes.

        Raises:
            ArtefactError: as for :attr:`parts`; there is no field, or one comes too often.
        """
        uses = Counter(name for _, name in self.parts if name is not None)
        if not uses:
            raise invalid("names no field")
        name, most = uses.most_common(1)[0]
        if most > MAX_USES:
            raise invalid(f"has the field {{{name}}} {most} times, and may have it {MAX_USES}")
        return dict(uses)

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """The distinct field names, in order of first use."""
        return tuple(self.uses)

    @cached_property
    def literal_characters(self) -> int:
        """Characters of the text beside the fields."""
        return sum(len(literal) for literal, _ in self.parts)

    def check(self) -> None:
        """Refuse a template that cannot be used.

        Raises:
            ArtefactError: as for :attr:`uses`.
        """
        assert self.uses, "a template without fields is refused"

    def length(self, inputs: Mapping[str, str]) -> int:
        """Characters of the text that :meth:`render` gives, told without making it.

        Args:
            inputs: those that are missing count as empty, and those that are no field not at all.
        """
        characters = self.literal_characters
        for name, uses in self.uses.items():
            characters += uses * len(inputs.get(name, ""))
        return characters

    def render(self, inputs: Mapping[str, str]) -> str:
        """Fill in the fields.

        Raises:
            InputError: a field is missing, an input is not a field, or all inputs are blank.
        """
        if inputs.keys() != self.uses.keys():
            raise self.mismatch(inputs)
        if not any(value.strip() for value in inputs.values()):
            raise InputError(
                "The text is empty; send at least one character that is not white space.",
                code=InputFault.EMPTY_TEXT,
                field=self.fields[0],
            )
        return "".join(
            literal + (inputs[name] if name is not None else "") for literal, name in self.parts
        )

    def mismatch(self, inputs: Mapping[str, str]) -> InputError:
        """The error for inputs that are not the fields."""
        wanted = ", ".join(self.fields)
        for field in self.fields:
            if field not in inputs:
                return InputError(
                    f"The input {field!r} is missing; this task takes: {wanted}.",
                    code=InputFault.MISSING_INPUT,
                    field=field,
                )
        name = next(name for name in inputs if name not in self.uses)
        return InputError(
            f"The input {name!r} is not known to this task; it takes: {wanted}.",
            code=InputFault.UNEXPECTED_INPUT,
            field=name,
        )


def invalid(reason: str) -> ArtefactError:
    """The error for a template that cannot be used, with the reason as its predicate."""
    return ArtefactError(
        f"The template {reason}. Write plain text with named fields, for example "
        "'premise: {premise} hypothesis: {hypothesis}'.",
        code=ArtefactFault.INVALID_TEMPLATE,
        field="template",
    )
