"""`python -m capsules.reproduce`: writes runs up as docs/results.md; tells how to make them again."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from capsules.errors import CapsuleError, DataError, DataFault
from capsules.reproduce.inspection import read_insights, write_inspection
from capsules.reproduce.report import IMAGES, RESULTS, read_files, write_report
from capsules.reproduce.script import absent, script


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the options; leaves with 2 where they cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m capsules.reproduce", description=__doc__)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--report", action="store_true", help="write docs/results.md and its plots")
    action.add_argument(
        "--inspect", type=Path, help="measure the capsules of this folder of runs, for the report"
    )
    action.add_argument(
        "--script",
        type=Path,
        metavar="OUTPUT",
        help="print a shell script that makes all committed runs again, in folders of OUTPUT, and "
        "puts them and the page in place of the present ones",
    )
    parser.add_argument(
        "--docs", type=Path, default=Path("docs"), help="folder of the page; default: docs"
    )
    parser.add_argument("--data", type=Path, help="holds a folder for each set; not with --report")
    parser.add_argument(
        "--name", help="of the runs' file in docs/results; with --script, of the only one"
    )
    parser.add_argument("--device", default="auto", help="where to run; not with --report")
    options = parser.parse_args(arguments)
    if options.inspect is not None and None in (options.data, options.name):
        parser.error("--inspect needs --data, the folder of the sets, and --name, of the runs")
    if options.script is not None and options.data is None:
        parser.error("--script needs --data, the folder of the sets")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what is asked for; 0 where it could be done."""
    options = parse(arguments)
    console = Console()
    docs: Path = options.docs
    try:
        if options.script is not None:
            sys.stdout.write("".join(f"{line}\n" for line in repeated(options)))
            return 0
        written = (
            write_report(docs)
            if options.report
            else write_inspection(
                options.inspect,
                options.data,
                docs / RESULTS,
                docs / IMAGES,
                options.name,
                options.device,
            )
        )
    except (CapsuleError, OSError) as error:
        errors = Console(stderr=True)
        errors.print(str(error), style="red", markup=False, soft_wrap=True)
        return 1
    for path in written:
        console.print(f"Wrote {path}", markup=False, soft_wrap=True)
    return 0


def repeated(options: argparse.Namespace) -> list[str]:
    """The lines of the script.

    Raises:
        CapsuleError: a file cannot be read, or there is none of that name.
        OSError: likewise.
    """
    folder = options.docs / RESULTS
    files = read_files(folder)
    if options.name is not None:
        if options.name not in files:
            raise DataError(
                f"{folder} has no runs named {options.name!r}; it has {', '.join(files) or 'none'}.",
                code=DataFault.UNREADABLE_FILE,
                field="name",
            )
        files = {options.name: files[options.name]}
    lacking = {stem: file for stem, rows in files.items() if (file := absent(rows)) is not None}
    for stem, file in lacking.items():
        Console(stderr=True).print(
            f"{stem} is left out: its backbone is not here as {file}.", markup=False, soft_wrap=True
        )
    return script(
        {stem: rows for stem, rows in files.items() if stem not in lacking},
        read_insights(folder).keys(),
        options.docs,
        data=options.data,
        output=options.script,
        device=options.device,
    )


if __name__ == "__main__":
    sys.exit(main())
