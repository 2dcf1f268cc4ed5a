"""How a command fails: one message on standard error, and an exit code that scripts can trust."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperGroup

from capsules.cli.output import complain
from capsules.errors import CapsuleError, OptionError, TrainingFault

FAILURE = 1
MISUSE = 2
INTERRUPTED = 130
BROKEN_PIPE = 141
"""What a shell reports of a program that SIGPIPE ended, as it ends most whose reader has gone."""


class CommandError(Exception):
    """What was asked for could not be done.

    Attributes:
        exit_code: of the process.
        message: one sentence for a person, with the remedy.
        code: stable identifier of the fault, in snake case.
    """

    exit_code: ClassVar[int] = FAILURE

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class UsageError(CommandError):
    """The command line itself cannot be followed."""

    exit_code = MISUSE

    def __init__(self, message: str, *, code: str = "invalid_option") -> None:
        super().__init__(message, code=code)


class Commands(TyperGroup):
    """A group whose commands report what they raise on purpose; anything else is a traceback."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """Read the command line, which shows the help where it asks for it.

        Raises:
            typer.Exit: nobody reads it.
        """
        with leaving_with_the_reader():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Run the command.

        Raises:
            typer.Exit: the command failed, after saying why.
        """
        with leaving_with_the_reader():
            return self.attempt(ctx)

    def attempt(self, ctx: Any) -> Any:
        """Run the command, and say why it failed if it did.

        Raises:
            typer.Exit: it did.
        """
        try:
            return super().invoke(ctx)
        except CommandError as failure:
            complain(failure.message, failure.code)
            raise typer.Exit(failure.exit_code) from failure
        except CapsuleError as error:
            complain(error.message, error.code)
            misused = isinstance(error, OptionError)
            raise typer.Exit(MISUSE if misused else FAILURE) from error
        except RuntimeError as error:
            # By name, since it brings torch, which not every command loads.
            if not import_module("capsules.memory").is_out_of_memory(error):
                raise
            complain(
                "There is not enough memory for even one text; shorten the longest, or lower "
                "--max-length.",
                TrainingFault.OUT_OF_MEMORY,
            )
            raise typer.Exit(FAILURE) from error


@contextmanager
def leaving_with_the_reader() -> Iterator[None]:
    """Leave without a word where nobody reads what is written, as in `capsule list | head -1`.

    Raises:
        typer.Exit: it is so.
    """
    try:
        yield
    except (BrokenPipeError, SystemExit) as error:
        # Rich, which shows the help and the tables, leaves with 1 instead.
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            raise
        # What is left in the buffers would be tried once more on exit, with a complaint.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            os.dup2(nowhere, stream.fileno())
        raise typer.Exit(BROKEN_PIPE) from error
