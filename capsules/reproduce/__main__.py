"""`python -m capsules.reproduce --report`: writes the committed runs up as docs/results.md."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from capsules.errors import CapsuleError
from capsules.reproduce.report import write_report


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page; 0 where it could be."""
    parser = argparse.ArgumentParser(prog="python -m capsules.reproduce", description=__doc__)
    parser.add_argument(
        "--report", action="store_true", required=True, help="write docs/results.md and its plots"
    )
    parser.add_argument(
        "--docs", type=Path, default=Path("docs"), help="folder of the page; default: docs"
    )
    options = parser.parse_args(arguments)
    console = Console()
    try:
        for path in write_report(options.docs):
            console.print(f"Wrote {path}", markup=False, soft_wrap=True)
    except (CapsuleError, OSError) as error:
        console.print(str(error), style="red", markup=False, soft_wrap=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
