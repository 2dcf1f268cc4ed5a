"""`capsule evaluate`: how good a capsule is on labelled rows."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from capsules.artefact.checks import check_backbone
from capsules.artefact.disk import read_bytes
from capsules.artefact.file import digest, parse
from capsules.artefact.reference import reference
from capsules.cli.backbone import load_backbone
from capsules.cli.data import Reader, limits_from
from capsules.cli.output import Output
from capsules.cli.progress import Bar
from capsules.evaluation.metrics import Report
from capsules.evaluation.runner import evaluate
from capsules.evaluation.table import report_tables
from capsules.executors.torch import TorchExecutor
from capsules.template import Template


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What the command was asked to do; see its options."""

    file: Path
    data: Path
    label_field: str
    max_bad_rows: str | None
    backbone: str
    device: str
    threads: int | None


def run(request: Evaluation, output: Output) -> None:
    """Measure a capsule and show the result.

    Raises:
        CommandError: an option cannot be used.
        CapsuleError: the capsule, the data or the backbone cannot be.
    """
    artefact = read_bytes(request.file)
    capsule = parse(artefact)
    reader = Reader(
        fields=Template(capsule.manifest.template).fields,
        label_field=request.label_field,
        limits=limits_from(request.max_bad_rows),
    )
    dataset = reader.read(request.data, labels=capsule.manifest.labels)
    loaded = load_backbone(request.backbone, request.device, request.threads)
    check_backbone(capsule.manifest, reference(loaded.info), loaded.info.max_tokens)
    with Bar("evaluating") as bar:
        report = evaluate(
            loaded,
            TorchExecutor(loaded.backbone),
            capsule,
            dataset.examples,
            progress=bar.advance,
        )
    document = {
        "task": capsule.manifest.task,
        "file": str(request.file),
        "digest": digest(artefact),
        "data": str(request.data),
        "bad_rows": dataset.bad_rows,
        **report.model_dump(mode="json"),
    }
    output.show(document=document, rows=lines(report), table=lambda: report_tables(report))


def lines(report: Report) -> Iterator[tuple[object, ...]]:
    """The evaluation as lines, the first cell of each saying what it holds."""
    yield ("accuracy", report.accuracy)
    yield ("macro_f1", report.macro_f1)
    yield ("examples", report.examples)
    for score in report.per_class:
        yield ("class", score.label, score.precision, score.recall, score.f1, score.support)
    for truth, row in zip(report.labels, report.confusion, strict=True):
        for predicted, rows in zip(report.labels, row, strict=True):
            if rows:
                yield ("confusion", truth, predicted, rows)
