"""`python -m benchmarks [NAME...]` answers all questions or some; `--report` writes them up."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from rich.console import Console

from benchmarks.context import Context
from benchmarks.errors import BenchmarkError, WrongMachineError
from benchmarks.machine import ROOT
from benchmarks.registry import BENCHMARKS, Benchmark, benchmark
from benchmarks.report import write_report
from benchmarks.tables import show
from benchmarks.texts import VARIABLE, data_folder
from capsules.errors import CapsuleError
from service.engine.executors import Choice

RESULTS = ROOT / "benchmarks" / "results"
QUICK_RESULTS = ROOT / "build" / "benchmarks"


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}")
    parser.add_argument(
        "--report", action="store_true", help="measure nothing; write docs from the results"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="tiny sizes that only show that it works; results go to build/benchmarks",
    )
    parser.add_argument(
        "--results", type=Path, help="folder of results; default: benchmarks/results"
    )
    parser.add_argument(
        "--data", help=f"folder of labelled data sets; else ${VARIABLE}, else ../shared/data"
    )
    parser.add_argument("--backbone", default="embedded", help="as the server's setting")
    parser.add_argument("--device", default="auto", help="as the server's setting")
    parser.add_argument(
        "--executor", default="auto", choices=get_args(Choice), help="as the server's setting"
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for; 0 where all of it could be measured, whatever came out."""
    chosen = options(arguments)
    console = Console()
    folder = chosen.results or (QUICK_RESULTS if chosen.quick else RESULTS)
    try:
        if chosen.report:
            for path in write_report(folder, ROOT / "docs"):
                console.print(f"Wrote {path}")
            return 0
        context = Context(
            quick=chosen.quick,
            data=data_folder(chosen.data, os.environ),
            backbone=chosen.backbone,
            device=chosen.device,
            executor=chosen.executor,
            tell=console.log,
        )
        for one in [benchmark(name) for name in chosen.names or BENCHMARKS]:
            console.rule(one.name)
            run(one, context, folder, console)
    except (BenchmarkError, CapsuleError) as error:
        console.print(str(error), style="red", markup=False)
        return 1
    return 0


def run(one: Benchmark, context: Context, folder: Path, console: Console) -> None:
    """Run one benchmark, keep its result and show it; leave it out where it cannot be run."""
    try:
        result = one.run(context)
    except WrongMachineError as error:
        console.print(f"Skipped: {error}", style="yellow", markup=False)
        return
    path = result.write(folder)
    show(result, console)
    console.print(f"Wrote {path}")


if __name__ == "__main__":
    sys.exit(main())
