"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

ExistingFile = Annotated[
    Path,
    typer.Argument(
        metavar="FILE", exists=True, dir_okay=False, readable=True, help="Capsule file."
    ),
]
DataFile = Annotated[
    Path,
    typer.Argument(
        metavar="DATA",
        exists=True,
        dir_okay=False,
        readable=True,
        help="Labelled rows: .jsonl, .csv or .tsv, plain or gzipped.",
    ),
]
LabelField = Annotated[str, typer.Option(help="Key or column that holds the label.")]
MaxBadRows = Annotated[
    str | None,
    typer.Option(
        metavar="N",
        help="Rows that may be unusable: a count (5) or a fraction (0.02); by default 20 or 1 %, "
        "whichever is more, and never more than a quarter.",
        show_default=False,
    ),
]
Backbone = Annotated[
    str,
    typer.Option(
        envvar="CAPSULE_BACKBONE",
        help="The frozen backbone: embedded, a local folder or a hub id.",
        show_envvar=True,
    ),
]
Device = Annotated[
    str,
    typer.Option(
        envvar="CAPSULE_DEVICE", help="Where it runs: auto, cpu, cuda or cuda:N.", show_envvar=True
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        envvar="CAPSULE_THREADS",
        min=1,
        help="CPU threads; by default one for each core.",
        show_default=False,
        show_envvar=True,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Write JSON, for programs.")]
