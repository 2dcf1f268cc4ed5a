"""`python -m capsules.zoo`: trains whatever of the zoo has no result yet."""

import argparse
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from capsules.backbones.load import load
from capsules.training.events import EpochReport
from capsules.zoo.build import Places, build
from capsules.zoo.recipe import RECIPES
from capsules.zoo.table import insert, markdown, results

HERE = Path(__file__).parent


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


def main() -> None:
    """Parse the options and build."""
    parser = argparse.ArgumentParser(prog="python -m capsules.zoo", description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of labelled data sets")
    parser.add_argument("--table", type=Path, help="only put the accuracy table into this file")
    parser.add_argument("--work", type=Path, default=Path("build/zoo"), help="checkpoints")
    parser.add_argument("--threads", type=int, help="CPU threads; default: all cores")
    parser.add_argument("--task", action="append", help="only this task; may be repeated")
    parser.add_argument("--seed", action="append", type=int, help="only this seed")
    options = parser.parse_args()
    if options.table:
        document = options.table.read_text()
        options.table.write_text(insert(document, markdown(results())))
        return
    if options.data is None:
        parser.error("--data is needed: the folder that holds a folder for each task")
    if options.threads:
        torch.set_num_threads(options.threads)
    places = Places(options.data, options.work, HERE / "results", HERE / "artefacts")
    loaded = load("embedded", dtype="float32")
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console()) as progress:
        for recipe in RECIPES:
            for seed in recipe.seeds:
                wanted = not options.task or recipe.task in options.task
                if not wanted or (options.seed and seed not in options.seed):
                    continue
                if places.result(recipe, seed).exists():
                    continue
                bar = Bar(progress, f"{recipe.task} seed {seed}")
                result = build(loaded, recipe, seed, places, bar)
                progress.remove_task(bar.bar)
                progress.console.print(
                    f"{bar.name}: test accuracy {result.capsule.test_accuracy:.4f}, "
                    f"linear head {result.linear_head.test_accuracy:.4f}"
                )


if __name__ == "__main__":
    main()
