"""Reads the rows of a submission and looks them over. Knows nothing of where it runs."""

from collections.abc import Mapping
from dataclasses import replace

from capsules.data.base import Dataset, require_measured
from capsules.data.collector import BadRowsError
from capsules.data.duplicates import duplicates, overlap
from capsules.data.limits import Limits
from capsules.data.packed import pack
from capsules.data.reader import read
from capsules.errors import CapsuleError, DataError, DataFault
from service.jobs.intake import telling
from service.jobs.intake.records import MAX_PROBLEMS, Demands, Findings, Refused, RowFile
from service.jobs.records import DataFacts, Split

LEAKS: Mapping[Split, str] = {"validation": "validation_leaks", "test": "test_leaks"}


class Refusal(Exception):  # noqa: N818 - carries what is told, and says that it is the end
    """The rows cannot be trained on.

    Attributes:
        refused: why.
    """

    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.message)
        self.refused = refused


def examine(files: Mapping[Split, RowFile], demands: Demands) -> Findings | Refused:
    """Read and check all rows of a submission.

    Args:
        files: those of the training rows, and of what other splits there are.
        demands: what the rows have to be like.
    """
    try:
        return examined(files, demands)
    except Refusal as refusal:
        return refusal.refused


def examined(files: Mapping[Split, RowFile], demands: Demands) -> Findings:
    """See :func:`examine`.

    Raises:
        Refusal: the rows cannot be trained on.
    """
    train = read_split("train", files["train"], demands)
    check_labels(train, demands)
    check_divisible(train, alone="validation" not in files)
    facts: dict[Split, DataFacts] = {"train": facts_of(files["train"], train)}
    sets: dict[Split, Dataset] = {"train": train}
    for split, file in files.items():
        if split != "train":
            sets[split], facts[split] = examine_other(split, file, train, demands)
    check_measured(train, sets.get("validation"))
    return Findings(
        labels=train.labels,
        facts=facts,
        packed={split: pack(rows) for split, rows in sets.items()},
        warnings=tuple(telling.warnings(facts, alone="validation" not in files)),
    )


def examine_other(
    split: Split, file: RowFile, train: Dataset, demands: Demands
) -> tuple[Dataset, DataFacts]:
    """The rows of a split that is not trained on, and what was found in it.

    Raises:
        Refusal: they cannot measure anything.
    """
    rows = read_split(split, file, demands)
    if unknown := sorted(set(rows.labels).difference(train.labels)):
        raise Refusal(telling.unknown_labels(split, rows, unknown))
    rows = replace(rows, labels=train.labels)
    shared = len(overlap(train, rows))
    if shared == len(rows):
        raise Refusal(telling.leak(LEAKS[split], split, shared))
    return rows, replace(facts_of(file, rows), overlap=shared)


def read_split(split: Split, file: RowFile, demands: Demands) -> Dataset:
    """The usable rows of a file.

    Raises:
        Refusal: there are none, or too many that are not, or the file is not what it should be.
    """
    limits = Limits(
        max_bad_rows=demands.max_bad_rows,
        max_reported=MAX_PROBLEMS,
        max_bytes=demands.max_bytes,
        max_rows=demands.max_rows,
    )
    # Labels that were asked for bind the training rows; others are told all at once.
    labels = demands.labels if split == "train" else None
    try:
        with open(file.descriptor, "rb", closefd=False) as stream:
            stream.seek(0)
            return read(
                stream,
                data_format=file.format,
                source=split,
                fields=demands.fields,
                label_field=demands.label_field,
                labels=labels,
                limits=limits,
            )
    except BadRowsError as error:
        raise Refusal(telling.bad_rows(split, file, error)) from error
    except CapsuleError as error:
        raise Refusal(telling.unreadable(split, error, demands)) from error


def check_labels(train: Dataset, demands: Demands) -> None:
    """Refuse more labels than a capsule can have.

    Raises:
        Refusal: there are more.
    """
    if len(train.labels) > demands.max_labels:
        raise Refusal(telling.too_many_labels(len(train.labels), demands.max_labels))


def check_divisible(train: Dataset, *, alone: bool) -> None:
    """Refuse rows that leave nothing to tell apart, or nothing to set aside where that is needed.

    Args:
        train: the training rows.
        alone: whether the validation rows have to come from these.

    Raises:
        Refusal: they do.
    """
    try:
        if alone:
            train.require_divisible()
        else:
            train.require_classes()
    except DataError as error:
        field = "validation" if error.code == DataFault.SPLIT_TOO_SMALL else "train"
        raise Refusal(Refused(error.code, error.message, field)) from error


def check_measured(train: Dataset, validation: Dataset | None) -> None:
    """Refuse rows of which some label would have none to validate on.

    Args:
        train: the training rows.
        validation: those to validate on; None where they are taken from these.

    Raises:
        Refusal: naming the label.
    """
    counts = train.counts()
    # Of two rows or more, one is set aside.
    others = {label: rows - 1 for label, rows in counts.items()}
    try:
        require_measured(counts, others if validation is None else validation.counts())
    except DataError as error:
        raise Refusal(Refused(error.code, error.message, error.field)) from error


def facts_of(file: RowFile, rows: Dataset) -> DataFacts:
    """What there is to know of a file by itself."""
    groups = duplicates(rows)
    return DataFacts(
        name=file.name,
        size=file.size,
        rows=len(rows),
        bad_rows=rows.bad_rows,
        digest=rows.digest,
        classes=rows.counts(),
        duplicates=sum(len(group.positions) - 1 for group in groups),
        conflicts=sum(group.conflicting for group in groups),
        problems=tuple((problem.line, problem.reason) for problem in rows.problems),
    )
