"""Data on standard output, in the form that suits its reader; messages on standard error."""

import json
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import typer
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

UNPRINTABLE = frozenset({"Cc", "Cs"})
"""Unicode categories that steer a terminal, or that it cannot show."""

DIGEST_CHARACTERS = 12
"""How much of a digest tells people one from another."""


class Output:
    """Standard output: a table on a terminal, tab-separated in a pipe, JSON where asked for."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        # Data may hold square brackets and colons, which must not be read as markup.
        self.console = Console(markup=False, emoji=False, highlight=False)

    @property
    def human(self) -> bool:
        """Whether a person reads it."""
        return self.console.is_terminal and not self.as_json

    def show(
        self,
        *,
        document: Any,
        rows: Iterable[Sequence[object]],
        table: Callable[[], RenderableType],
    ) -> None:
        """Write a result in the right one of its three forms.

        Args:
            document: what JSON can hold.
            rows: cells of each line.
            table: for a terminal.
        """
        if self.as_json:
            typer.echo(json.dumps(document, indent=2))
        elif self.human:
            self.console.print(table())
        else:
            self.write_rows(rows)

    def write_rows(self, rows: Iterable[Sequence[object]]) -> None:
        """Write tab-separated lines."""
        for row in rows:
            typer.echo("\t".join(cell(value) for value in row))


def messages() -> Console:
    """Standard error, whose lines are never broken: they may be searched for."""
    return Console(stderr=True, markup=False, emoji=False, highlight=False, soft_wrap=True)


def say(message: str, *, style: str = "") -> None:
    """Tell the person at the terminal something."""
    messages().print(Text(printable(message, keep="\n"), style=style))


def warn(message: str) -> None:
    """Tell of something that is not as it should be, but does not stop the command."""
    say(f"warning: {message}", style="yellow")


def complain(message: str, code: str) -> None:
    """Tell what went wrong."""
    say(f"error [{code}]: {message}", style="red")


def pairs_table(title: str, pairs: Iterable[tuple[str, object]]) -> Table:
    """Names and values, one below the other."""
    table = Table(title=printable(title), title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in pairs:
        table.add_row(name, cell(value))
    return table


def cell(value: object) -> str:
    """A value as the text of one cell; nothing for None."""
    return "" if value is None else printable(str(value))


def printable(text: str, *, keep: str = "") -> str:
    """Text with its control characters and lone surrogates written as escapes.

    Args:
        text: may come from a file or a server, and may try to steer the terminal.
        keep: control characters to leave as they are.
    """
    if text.isprintable():
        return text
    return "".join(
        character
        if character in keep or unicodedata.category(character) not in UNPRINTABLE
        else character.encode("unicode_escape").decode()
        for character in text
    )


def count(number: int, noun: str) -> str:
    """A number of things."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
