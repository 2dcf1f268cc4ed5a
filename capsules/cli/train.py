"""`capsule train`: from a file of labelled rows to a capsule file."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from pydantic import ValidationError

from capsules.artefact.checks import check_manifest
from capsules.artefact.file import digest, dump
from capsules.backbones.base import BackboneInfo, LoadedBackbone
from capsules.cli.backbone import load_backbone
from capsules.cli.data import (
    Reader,
    fields_of,
    limits_from,
    warn_of_contradictions,
    warn_of_overlap,
)
from capsules.cli.failure import INTERRUPTED, CommandError, UsageError
from capsules.cli.output import Output, count, pairs_table, say
from capsules.cli.progress import TrainingBar
from capsules.cli.values import label_and_word, layer_choice, shown
from capsules.data.base import Dataset, require_measured
from capsules.data.split import split
from capsules.errors import ArtefactError, TrainingFault
from capsules.evaluation.metrics import Report
from capsules.training.checkpoint import FileKeeper
from capsules.training.config import TrainingConfig
from capsules.training.finish import draft, finish
from capsules.training.run import Run, usual_max_length


@dataclass(frozen=True, slots=True)
class Training:
    """What the command was asked to do; see its options.

    Attributes:
        options: of `TrainingConfig`, by name; None where the default is wanted.
    """

    data: Path
    validation: Path | None
    validation_fraction: float
    test: Path | None
    label_field: str
    max_bad_rows: str | None
    backbone: str
    device: str
    threads: int | None
    output: Path | None
    checkpoint: Path | None
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Splits:
    """The rows of a run, all under the labels of the training rows.

    Attributes:
        bad_rows: rows left out of the files.
    """

    train: Dataset
    validation: Dataset
    test: Dataset | None
    bad_rows: int


def run(request: Training, output: Output) -> None:
    """Train a capsule, write it, and show how good it is.

    Raises:
        CommandError: an option cannot be used, or the file cannot be written.
        CapsuleError: the data or the backbone cannot be used, or training fails.
        typer.Exit: interrupted; what has been trained so far is kept.
    """
    config = config_from(request.options)
    path = request.output or Path(f"{config.task}.safetensors")
    require_writable(path, "--output")
    checkpoint = request.checkpoint or path.with_suffix(".checkpoint")
    require_writable(checkpoint, "--checkpoint")
    require_distinct(request, path, checkpoint)
    splits = read_splits(request, config)
    loaded = load_backbone(request.backbone, request.device, request.threads)
    config = fitted(config, request.options, loaded.info)
    rehearse(config, splits.train.labels, loaded)
    bar = TrainingBar(config.epochs)
    training = Run(
        loaded, config, splits.train, splits.validation, keeper=FileKeeper(checkpoint), watcher=bar
    )
    if training.reports:
        say(f"Going on after epoch {len(training.reports)} of {config.epochs} from {checkpoint}.")
    try:
        with bar:
            training.run()
        complete(training, splits, path, checkpoint, output)
    except KeyboardInterrupt:
        say(kept(training, checkpoint), style="yellow")
        raise typer.Exit(INTERRUPTED) from None


def config_from(options: Mapping[str, Any]) -> TrainingConfig:
    """The options that were given, checked.

    Raises:
        UsageError: naming every one that cannot be used.
    """
    given = {name: value for name, value in options.items() if value is not None}
    if "layers" in given:
        given["layers"] = layer_choice(given["layers"])
    if "verbalizers" in given:
        given["verbalizers"] = dict(label_and_word(one) for one in given["verbalizers"])
    try:
        return TrainingConfig(**given)
    except ValidationError as error:
        raise usage_error_of(error) from error


def usage_error_of(error: ValidationError) -> UsageError:
    """Every fault that pydantic found, a line each, by the name of its option."""
    faults = [
        f"--{str(fault['loc'][0]).replace('_', '-')} {shown(fault['input'])}: {fault['msg']}."
        for fault in error.errors(include_url=False)
    ]
    return UsageError("\n".join(faults))


def require_writable(path: Path, option: str) -> None:
    """Refuse, before any work, a file that could not be written after it.

    Raises:
        UsageError: it is a folder, or its folder is missing or read-only.
    """
    folder = path.absolute().parent
    if path.is_dir():
        raise UsageError(f"{option}: {path} is a folder; name a file.")
    if not folder.is_dir():
        raise UsageError(f"{option}: the folder {folder} does not exist; make it first.")
    if not os.access(folder, os.W_OK):
        raise UsageError(f"{option}: the folder {folder} cannot be written to; choose another.")


def require_distinct(request: Training, path: Path, checkpoint: Path) -> None:
    """Refuse to write over what is read, or the capsule and the checkpoint over each other.

    Raises:
        UsageError: two of the files are one.
    """
    read = {file.resolve() for file in (request.data, request.validation, request.test) if file}
    for option, file in (("--output", path), ("--checkpoint", checkpoint)):
        if file.resolve() in read:
            raise UsageError(f"{option}: {file} holds the rows; name another file.")
    if path.resolve() == checkpoint.resolve():
        raise UsageError(f"--checkpoint: {checkpoint} is the output; name another file.")


def read_splits(request: Training, config: TrainingConfig) -> Splits:
    """The rows to learn from, to choose the best epoch by, and to measure it on.

    Raises:
        CommandError: an option cannot be used.
        CapsuleError: a file cannot be.
    """
    reader = Reader(
        fields=fields_of(config.template),
        label_field=request.label_field,
        limits=limits_from(request.max_bad_rows),
    )
    train = reader.read(request.data)
    labels, bad_rows = train.labels, train.bad_rows
    if request.validation is not None:
        validation = reader.read(request.validation, labels=labels)
        bad_rows += validation.bad_rows
    else:
        parts = split(train, fraction=request.validation_fraction, seed=config.seed)
        train, validation = parts.train, parts.validation
    test = None if request.test is None else reader.read(request.test, labels=labels)
    bad_rows += 0 if test is None else test.bad_rows
    require_measured(train.counts(), validation.counts())
    warn_of_contradictions(train)
    warn_of_overlap(train, validation, "validation")
    if test is not None:
        warn_of_overlap(train, test, "test")
    return Splits(train=train, validation=validation, test=test, bad_rows=bad_rows)


def fitted(
    config: TrainingConfig, options: Mapping[str, Any], info: BackboneInfo
) -> TrainingConfig:
    """The options for a backbone that may take less text than the default length."""
    if options.get("max_length") is not None:
        return config
    assert config.variant is not None, "the command trains capsules only"
    usual = usual_max_length(info, config.variant, config.length)
    return config.model_copy(update={"max_length": usual})


def rehearse(config: TrainingConfig, labels: Sequence[str], loaded: LoadedBackbone) -> None:
    """Refuse now what would be refused when the trained capsule is written.

    Raises:
        UsageError: naming the option.
    """
    try:
        check_manifest(draft(loaded, config, labels))
    except ValidationError as error:
        raise usage_error_of(error) from error
    except ArtefactError as error:
        raise UsageError(error.message, code=error.code) from error


def complete(training: Run, splits: Splits, path: Path, checkpoint: Path, output: Output) -> None:
    """Measure a finished run, write its capsule, and show both.

    Raises:
        CommandError: the file cannot be written.
    """
    measured: dict[str, float] = {}
    if splits.test is not None:
        truth = [example.label for example in splits.test]
        report = Report.from_labels(truth, training.predict(splits.test), labels=training.labels)
        measured = {"test_accuracy": report.accuracy, "test_macro_f1": report.macro_f1}
    capsule = finish(training, test_rows=len(splits.test or ()), metrics=measured)
    data = dump(capsule)
    write(path, data)
    checkpoint.unlink(missing_ok=True)
    record = capsule.manifest.training
    assert record is not None, "finish records it"
    document = {
        "task": capsule.manifest.task,
        "file": str(path),
        "digest": digest(data),
        "bytes": len(data),
        "labels": len(capsule.manifest.labels),
        "rows": record.splits.model_dump(),
        "bad_rows": splits.bad_rows,
        "epochs": record.epochs,
        "best_epoch": record.best_epoch,
        "seconds": record.duration_seconds,
        "metrics": record.metrics,
    }
    facts = [*flattened(document)]
    output.show(document=document, rows=facts, table=lambda: pairs_table("Trained", facts))
    if output.human:
        say(f"Serve it with: capsule push {path}")


def flattened(document: Mapping[str, Any]) -> list[tuple[str, object]]:
    """The result as names and values, without the levels of the document."""
    facts: list[tuple[str, object]] = []
    for name, value in document.items():
        if name == "rows":
            facts += [(f"{part}_rows", rows) for part, rows in value.items()]
        elif name == "metrics":
            facts += [(metric, f"{score:.4f}") for metric, score in value.items()]
        else:
            facts.append((name, value))
    return facts


def write(path: Path, data: bytes) -> None:
    """Write a file so that it is either whole or not there.

    Raises:
        CommandError: it cannot be written.
    """
    passing = path.with_name(f".{path.name}.partial")
    try:
        passing.write_bytes(data)
        passing.replace(path)
    except OSError as error:
        with suppress(OSError):
            passing.unlink()
        raise CommandError(
            f"{path} cannot be written: {error.strerror}. The trained epochs are kept; free some "
            "space and repeat the command.",
            code=TrainingFault.UNWRITABLE_OUTPUT,
        ) from error


def kept(training: Run, checkpoint: Path) -> str:
    """What is left of an interrupted run, and how to go on."""
    epochs = len(training.reports)
    if not epochs:
        return "Interrupted before the first epoch was finished; nothing is kept."
    return (
        f"Interrupted after {count(epochs, 'epoch')} of {training.config.epochs}, kept in "
        f"{checkpoint}; repeat the command to go on from there."
    )
