"""`capsule reproduce`: the published comparisons, on a backbone of one's own."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from pydantic import ValidationError

from capsules.backbones.base import BackboneInfo, LoadedBackbone
from capsules.cli.backbone import load_backbone
from capsules.cli.failure import INTERRUPTED, CommandError
from capsules.cli.output import Output, count, say, warn
from capsules.cli.progress import Bar
from capsules.cli.train import usage_error_of
from capsules.cli.values import layer_choice
from capsules.errors import DataError, DataFault
from capsules.reproduce import method, suite
from capsules.reproduce.claims import CAPSULE
from capsules.reproduce.comparison import compare
from capsules.reproduce.experiment import Experiment
from capsules.reproduce.journal import Journal
from capsules.reproduce.method import Method
from capsules.reproduce.page import INSTANCE, summary
from capsules.reproduce.record import Configuration, Frozen, Row, Settings, Skip
from capsules.reproduce.registry import draw, require
from capsules.reproduce.splits import Source, read, require as require_rows
from capsules.reproduce.summary import Cell, cells, paired
from capsules.reproduce.table import shown
from capsules.reproduce.task import Task
from capsules.reproduce.turn import alone_in
from capsules.training.events import EpochReport, Watcher

RESULTS_JSON = "results.json"
RESULTS_MARKDOWN = "results.md"


@dataclass(frozen=True, slots=True)
class Reproduction:
    """What the command was asked to do; see its options.

    Attributes:
        settings: of `Settings`, by name.
    """

    suite: str
    tasks: str | None
    methods: str | None
    seeds: int
    learning_rates: Sequence[str]
    data: Path
    backbone: str
    device: str
    threads: int | None
    folder: Path
    plots: bool
    settings: Mapping[str, Any]


def run(request: Reproduction, output: Output) -> None:
    """Make the runs that are missing, and write up all that the folder has.

    Raises:
        CommandError: an option cannot be used, or a run failed.
        CapsuleError: the data, the backbone or the folder cannot be used.
        typer.Exit: interrupted; finished runs are kept.
    """
    settings = settings_from(request.settings)
    wanted = names(request.tasks)
    tasks = suite.choose(request.suite, wanted)
    chosen: Sequence[Method] = method.choose(names(request.methods))
    require(chosen, plots=request.plots)
    sources, missing = read_sources(tasks, request.data, named=bool(wanted))
    loaded = load_backbone(request.backbone, request.device, request.threads)
    family = loaded.info.family
    chosen, unfit = method.fitting(chosen, family, named=bool(request.methods))
    missing += [
        Skip(task=source.task.name, method=one.name, seed=None, reason=method.NOTHING_TO_LEARN)
        for source in sources
        for one in unfit
    ]
    rates = method.learning_rates(chosen, family, request.learning_rates)
    configuration = Configuration(backbone=frozen(loaded.info, request.backbone), settings=settings)
    # A seed at a time, so that an unfinished comparison has whole tables of fewer seeds.
    experiments = [
        Experiment(source, one, seed, rates[one.name])
        for seed in range(request.seeds)
        for source in sources
        for one in chosen
    ]
    with alone_in(request.folder):
        journal = Journal(request.folder, configuration)
        failed = attempt(experiments, loaded, journal)
        skips = [*missing, *failed]
        document = write_up(journal, skips)
        if request.plots and journal.rows:
            draw(sources, loaded, journal)
    found = cells(journal.rows)
    output.show(document=document, rows=lines(found, skips), table=lambda: shown(found, skips))
    if output.human:
        say(f"Written to {journal.folder / RESULTS_MARKDOWN} and the files beside it.")
    if failed:
        raise CommandError(
            f"{count(len(failed), 'run')} failed: {failed[0].reason} "
            f"All reasons are in {journal.folder / RESULTS_MARKDOWN}.",
            code="runs_failed",
        )


def attempt(
    experiments: Sequence[Experiment], loaded: LoadedBackbone, journal: Journal
) -> list[Skip]:
    """Make the runs that are missing, with their progress shown; gives those that failed.

    Raises:
        CapsuleError: the folder cannot be used, or two runs do not go together.
        typer.Exit: interrupted; finished runs are kept.
    """
    bar = ComparisonBar(journal.configuration.settings.epochs)
    try:
        with bar:
            return compare(experiments, loaded, journal, bar)
    except KeyboardInterrupt:
        say(
            f"Interrupted; {count(len(journal.rows), 'finished run')} and the epochs of the "
            f"present one are kept in {journal.folder}. Repeat the command to go on from there.",
            style="yellow",
        )
        raise typer.Exit(INTERRUPTED) from None


def settings_from(options: Mapping[str, Any]) -> Settings:
    """The options that runs share, checked.

    Raises:
        UsageError: naming every one that cannot be used.
    """
    given = {name: value for name, value in options.items() if value is not None}
    if "layers" in given:
        given["layers"] = layer_choice(given["layers"])
    try:
        return Settings(**given)
    except ValidationError as error:
        raise usage_error_of(error) from error


def names(option: str | None) -> list[str]:
    """The names in an option, separated by commas."""
    return [name.strip() for name in (option or "").split(",") if name.strip()]


def read_sources(
    tasks: Sequence[Task], data: Path, *, named: bool
) -> tuple[list[Source], list[Skip]]:
    """The rows of the sets that are there, and why the others are not run.

    Args:
        tasks: the sets.
        data: holds a folder for each.
        named: whether each was asked for by its name, so that none may be absent.

    Raises:
        DataError: a file cannot be used, or sets that must be there are absent.
    """
    if not data.is_dir():
        raise DataError(
            f"{data} is no folder; name the one that holds a folder for each set with --data.",
            code=DataFault.UNREADABLE_FILE,
            field="data",
        )
    sources: list[Source] = []
    missing: list[Skip] = []
    for task in tasks:
        source = require_rows(task, data) if named else read(task, data)
        if source is not None:
            sources.append(source)
            if source.note is not None:
                warn(f"{task.name} has {source.note}; its scores are not the published ones.")
            continue
        reason = suite.absent(task, data / task.name)
        missing.append(Skip(task=task.name, method=None, seed=None, reason=reason))
        warn(f"{reason} It is left out.")
    if not sources:
        raise DataError(
            f"{data} has none of the sets {', '.join(task.name for task in tasks)}; name their "
            "folder with --data.",
            code=DataFault.UNREADABLE_FILE,
            field="data",
        )
    return sources, missing


def frozen(info: BackboneInfo, specification: str) -> Frozen:
    """What a run keeps of its backbone."""
    return Frozen(
        id=info.id,
        specification=specification,
        family=info.family,
        architecture=info.architecture,
        parameters=info.parameters,
        fingerprint=info.fingerprint,
    )


def write_up(journal: Journal, skips: Sequence[Skip]) -> dict[str, Any]:
    """Write the folder's tables, and give what is in them as JSON can hold it.

    Raises:
        TrainingError: they cannot be written.
    """
    document = {
        "configuration": journal.configuration.model_dump(mode="json"),
        "runs": len(journal.rows),
        "cells": [one.model_dump(mode="json") for one in cells(journal.rows)],
        "differences": [
            one.model_dump(mode="json") for one in paired(journal.rows, CAPSULE, INSTANCE)
        ],
        "skipped": [one.model_dump(mode="json") for one in skips],
    }
    journal.write(RESULTS_JSON, json.dumps(document, indent=1) + "\n")
    journal.write(RESULTS_MARKDOWN, summary(journal.rows, skips))
    return document


def lines(found: Sequence[Cell], skips: Sequence[Skip]) -> Iterator[tuple[object, ...]]:
    """The comparison as lines, the first cell of each saying what it holds."""
    for one in found:
        yield (
            "score",
            one.task,
            one.method,
            len(one.seeds),
            f"{one.mean:.4f}",
            None if one.deviation is None else f"{one.deviation:.4f}",
            one.trainable_parameters,
            f"{one.percentage:.4f}",
            f"{one.seconds:.1f}",
        )
    for skip in skips:
        yield ("skipped", skip.task, skip.method, skip.seed, skip.reason)


class ComparisonBar(Bar):
    """Follows a comparison: a bar over its runs, and one over the steps of the present one."""

    def __init__(self, epochs: int) -> None:
        super().__init__("runs")
        self.epochs = epochs
        self.steps = self.progress.add_task("", total=None, visible=False)
        self.name = ""
        self.runs = 0
        self.done = 0

    def plan(self, runs: int, done: int) -> None:
        """Say where the comparison stands."""
        self.runs, self.done = runs, done
        if done:
            say(f"{done:,} of {count(runs, 'run')} are finished already.")
        self.advance(done, runs)

    def watch(self, name: str, learning_rate: float) -> Watcher:
        """Follow a run."""
        self.name = f"{name}  learning rate {learning_rate:g}"
        self.progress.reset(self.steps, description=self.name, total=None, visible=True)
        return self

    def step(self, epoch: int, step: int, steps: int, loss: float) -> None:
        """Move on by a batch."""
        self.progress.update(
            self.steps,
            description=f"{self.name}  epoch {epoch}/{self.epochs}  loss {loss:.4f}",
            completed=(epoch - 1) * steps + step,
            total=self.epochs * steps,
        )

    def epoch(self, report: EpochReport) -> None:
        """Say what an epoch gave, in a log; on a terminal the bar shows that it goes on."""
        if not self.console.is_terminal:
            self.console.print(
                f"{self.name}  epoch {report.epoch}/{self.epochs}  "
                f"accuracy {report.validation_accuracy:.4f}  {report.seconds:.1f} s"
            )

    def finished(self, row: Row) -> None:
        """Say what a run gave."""
        self.passed(
            f"{row.task} {row.method} seed {row.seed}: test {row.test.score:.4f}, validation "
            f"{row.validation.score:.4f}, learning rate {row.learning_rate:g}, epoch "
            f"{row.best_epoch} of {row.epochs}, {row.search_seconds:.1f} s"
        )

    def skipped(self, skip: Skip) -> None:
        """Say why a run failed."""
        self.passed(f"{skip.task} {skip.method} seed {skip.seed} failed: {skip.reason}")

    def passed(self, line: str) -> None:
        """Move on by a run."""
        self.done += 1
        self.progress.update(self.steps, visible=False)
        self.console.print(f"[{self.done}/{self.runs}] {line}")
        self.advance(self.done, self.runs)
