"""How a command fails: one message on standard error, and an exit code that scripts can trust."""

from typing import Any, ClassVar

import typer
from typer.core import TyperGroup

from capsules.cli.output import complain
from capsules.errors import CapsuleError, OptionError

FAILURE = 1
MISUSE = 2
INTERRUPTED = 130


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

    def invoke(self, ctx: Any) -> Any:
        """Run the command.

        Raises:
            typer.Exit: the command failed, after saying why.
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
