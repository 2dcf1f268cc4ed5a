"""`python -m capsules.reproduce`: writes runs up as docs/results.md, or looks into their capsules."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from capsules.errors import CapsuleError
from capsules.reproduce.inspection import write_inspection
from capsules.reproduce.report import IMAGES, RESULTS, write_report


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the options; leaves with 2 where they cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m capsules.reproduce", description=__doc__)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--report", action="store_true", help="write docs/results.md and its plots")
    action.add_argument(
        "--inspect", type=Path, help="measure the capsules of this folder of runs, for the report"
    )
    parser.add_argument(
        "--docs", type=Path, default=Path("docs"), help="folder of the page; default: docs"
    )
    parser.add_argument("--data", type=Path, help="holds a folder for each set; with --inspect")
    parser.add_argument("--name", help="of the runs' file in docs/results; with --inspect")
    options = parser.parse_args(arguments)
    if options.inspect is not None and None in (options.data, options.name):
        parser.error("--inspect needs --data, the folder of the sets, and --name, of the runs")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what is asked for; 0 where it could be done."""
    options = parse(arguments)
    console = Console()
    docs: Path = options.docs
    try:
        written = (
            write_report(docs)
            if options.report
            else write_inspection(
                options.inspect, options.data, docs / RESULTS, docs / IMAGES, options.name
            )
        )
    except (CapsuleError, OSError) as error:
        console.print(str(error), style="red", markup=False, soft_wrap=True)
        return 1
    for path in written:
        console.print(f"Wrote {path}", markup=False, soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
