"""`python -m capsules.zoo`: trains the shipped capsules and the linear heads beside them."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from capsules.backbones.base import LoadedBackbone
from capsules.backbones.load import load
from capsules.errors import CapsuleError
from capsules.training.events import EpochReport
from capsules.zoo.build import Places, build
from capsules.zoo.recipe import RECIPES, Recipe
from capsules.zoo.table import insert, markdown, results

HERE = Path(__file__).parent
FAILURE = 1


class Bar:
    """A progress bar for one run, and a line for each finished epoch."""

    def __init__(self, progress: Progress, name: str) -> None:
        self.progress = progress
        self.name = name
        self.bar = progress.add_task(name)

    def step(self, epoch: int, step: int, steps: int, loss: float) -> None:
        """Move the bar on."""
        self.progress.update(
            self.bar, completed=step, total=steps, description=f"{self.name} epoch {epoch}"
        )

    def epoch(self, report: EpochReport) -> None:
        """Print what the epoch gave."""
        self.progress.console.print(
            f"{self.name} epoch {report.epoch}: train loss {report.train_loss:.4f}, validation "
            f"accuracy {report.validation_accuracy:.4f}, {report.seconds:.0f} s"
        )


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the options; leaves with 2 where they cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m capsules.zoo", description=__doc__)
    parser.add_argument("--data", type=Path, help="folder that holds a folder for each task")
    parser.add_argument("--table", type=Path, help="only put the accuracy table into this file")
    parser.add_argument("--work", type=Path, default=Path("build/zoo"), help="checkpoints")
    parser.add_argument("--results", type=Path, default=HERE / "results", help="results")
    parser.add_argument("--artefacts", type=Path, default=HERE / "artefacts", help="capsules")
    parser.add_argument("--threads", type=int, help="CPU threads; default: all cores")
    parser.add_argument(
        "--task",
        action="append",
        choices=[recipe.task for recipe in RECIPES],
        help="only this task; may be repeated",
    )
    parser.add_argument("--seed", action="append", type=int, help="only this seed; may be repeated")
    parser.add_argument(
        "--retrain", action="store_true", help="also what has a result, which is then replaced"
    )
    options = parser.parse_args(arguments)
    if options.table is None and options.data is None:
        parser.error("--data is needed: the folder that holds a folder for each task")
    return options


def chosen(tasks: Iterable[str] | None, seeds: Iterable[int] | None) -> list[tuple[Recipe, int]]:
    """The runs of these tasks and seeds; of all where none are named."""
    return [
        (recipe, seed)
        for recipe in RECIPES
        for seed in recipe.seeds
        if (not tasks or recipe.task in tasks) and (not seeds or seed in seeds)
    ]


def train(
    loaded: LoadedBackbone,
    runs: Sequence[tuple[Recipe, int]],
    places: Places,
    console: Console,
) -> None:
    """Build one after the other.

    Checkpoints stay until all of them are done, so that an interrupted retraining goes on where it
    was, and go then, so that the next one begins anew.

    Raises:
        CapsuleError: the data are not there or unusable, or a run failed.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        for recipe, seed in runs:
            bar = Bar(progress, f"{recipe.task} seed {seed}")
            result = build(loaded, recipe, seed, places, bar)
            progress.remove_task(bar.bar)
            console.print(
                f"{bar.name}: test accuracy {result.capsule.test_accuracy:.4f}, "
                f"linear head {result.linear_head.test_accuracy:.4f}"
            )
    for recipe, seed in runs:
        for checkpoint in places.checkpoints(recipe, seed):
            checkpoint.unlink(missing_ok=True)


def main(arguments: Sequence[str] | None = None, console: Console | None = None) -> int:
    """Run the command.

    Args:
        arguments: None stands for the process's.
        console: where to write; None stands for standard output.

    Returns:
        The exit status.
    """
    options = parse(arguments)
    console = console or Console()
    if options.table is not None:
        document = options.table.read_text()
        options.table.write_text(insert(document, markdown(results())))
        return 0
    if options.threads:
        torch.set_num_threads(options.threads)
    places = Places(options.data, options.work, options.results, options.artefacts)
    runs = chosen(options.task, options.seed)
    wanted = [run for run in runs if options.retrain or not places.result(*run).exists()]
    for recipe, seed in runs:
        if (recipe, seed) not in wanted:
            console.print(f"{recipe.task} seed {seed}: result present, skipped")
    if len(wanted) < len(runs):
        console.print("--retrain trains also what has a result.")
    try:
        if wanted:
            train(load("embedded", dtype="float32"), wanted, places, console)
    except CapsuleError as error:
        console.print(f"error [{error.code}]: {error.message}", markup=False, style="red")
        return FAILURE
    return 0


if __name__ == "__main__":
    sys.exit(main())
