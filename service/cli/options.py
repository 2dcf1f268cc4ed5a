"""Arguments and options that several commands share."""

from typing import Annotated

import typer

DEFAULT_URL = "http://127.0.0.1:8000"
DEFAULT_TIMEOUT_S = 60.0

Url = Annotated[
    str,
    typer.Option(envvar="CAPSULE_URL", help="Where the server is.", show_envvar=True),
]
Timeout = Annotated[
    float,
    typer.Option(
        min=0.001,
        metavar="SECONDS",
        help="Give up on each request after so long, waiting for a busy server included.",
    ),
]


def setting(name: str, help_text: str, *declarations: str, metavar: str | None = None) -> object:
    """The option of a server setting, which also has an environment variable.

    Its text is not parsed here: the settings are checked together, wherever they come from.
    """
    return typer.Option(
        *declarations,
        metavar=metavar,
        help=f"{help_text} [dim]env: CAPSULE_{name.upper()}[/dim]",
        show_default=False,
    )
