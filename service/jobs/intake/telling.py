"""What is said of the rows of a submission: to refuse them, or to warn of them."""

from collections.abc import Iterator, Mapping, Sequence

from capsules.data.base import Dataset
from capsules.data.collector import BadRowsError
from capsules.errors import CapsuleError, DataFault, OptionError
from service.jobs.intake.records import INLINE, Demands, Refused, RowFile
from service.jobs.records import DataFacts, Split

SHOWN = 3
"""Labels that a sentence names before it goes on with their number."""

REMEDIES = {
    DataFault.MISSING_COLUMN: " Rename the column, or change template or label_field.",
    DataFault.UNREADABLE_FILE: " Send all of it, as UTF-8, plain or gzipped.",
}


def bad_rows(split: Split, file: RowFile, error: BadRowsError) -> Refused:
    """The refusal of a file with too many rows that cannot be used, one by one."""
    # Its other lines are those rows.
    summary, *_ = error.message.splitlines()
    return Refused(
        error.code,
        f"{summary.removesuffix(':')}.",
        split,
        tuple(f"{unit(file.name)} {problem.line}: {problem.reason}" for problem in error.problems),
    )


def unreadable(split: Split, error: CapsuleError, demands: Demands) -> Refused:
    """The refusal of a file, or of an option that its rows cannot be read with."""
    if isinstance(error, OptionError):
        return Refused(error.code, error.message, error.field)
    limits = {
        DataFault.FILE_TOO_LARGE: (
            f"{split} holds more than {demands.max_bytes:,} bytes once it is unpacked, the most "
            "that this server takes (CAPSULE_MAX_DATASET_BYTES); send fewer rows, or have its "
            "operator raise that."
        ),
        DataFault.TOO_MANY_ROWS: (
            f"{split} has more than {demands.max_rows:,} rows, the most that this server takes "
            "(CAPSULE_MAX_DATASET_ROWS); send a sample of them, or have its operator raise that."
        ),
    }
    code = DataFault(error.code)
    message = limits.get(code, error.message)
    return Refused(code.value, message + REMEDIES.get(code, ""), split)


def too_many_labels(found: int, most: int) -> Refused:
    """The refusal of more labels than a capsule can have."""
    return Refused(
        "too_many_labels",
        f"train has {found:,} labels, and a capsule at most {most:,}; merge some of them, or check "
        "that label_field names the right field.",
        "train",
    )


def unknown_labels(split: Split, rows: Dataset, unknown: Sequence[str]) -> Refused:
    """The refusal of rows whose labels no training row has."""
    counts = rows.counts()
    affected = sum(counts[label] for label in unknown)
    return Refused(
        DataFault.UNKNOWN_LABEL.value,
        f"{split} has {counted(affected, 'row')} with a label that the capsule will not know: "
        f"{listed(unknown)}; add rows of that label to train, or leave these out.",
        split,
    )


def leak(code: str, split: Split, rows: int) -> Refused:
    """The refusal of rows that measure nothing, since all of them are trained on."""
    return Refused(
        code,
        f"All {counted(rows, 'row')} of {split} {'is' if rows == 1 else 'are'} among the training "
        f"rows too, so {split} would say nothing about new texts; send rows that are not trained "
        f"on, or leave {split} out.",
        split,
    )


def warnings(facts: Mapping[Split, DataFacts], *, alone: bool) -> Iterator[str]:
    """What the owner of accepted rows should know.

    Args:
        facts: of each split.
        alone: whether validation rows will be taken from the training rows.
    """
    for split, found in facts.items():
        if found.bad_rows:
            line, reason = found.problems[0]
            yield (
                f"{counted(found.bad_rows, 'row')} of {split} cannot be used and "
                f"{'is' if found.bad_rows == 1 else 'are'} left out, the first at "
                f"{unit(found.name)} {line}: {reason}."
            )
        if found.conflicts:
            yield (
                f"{counted(found.conflicts, 'text')} of {split} "
                f"{'comes' if found.conflicts == 1 else 'come'} under more than one label; a "
                "capsule cannot be right about all of these."
            )
        if found.overlap:
            yield (
                f"{found.overlap:,} of the {counted(found.rows, 'row')} of {split} "
                f"{'is' if found.overlap == 1 else 'are'} among the training rows too; what is "
                "measured on them says nothing about new texts."
            )
    train = facts["train"]
    if alone and train.duplicates:
        yield (
            f"{counted(train.duplicates, 'row')} of train "
            f"{'repeats an earlier one' if train.duplicates == 1 else 'repeat earlier ones'}, so "
            "some of those set aside for validation may be trained on too."
        )
    if idle := [label for label, rows in train.classes.items() if not rows]:
        yield (
            f"No training row has the {'label' if len(idle) == 1 else 'labels'} {listed(idle)}, so "
            "the capsule will hardly ever give it."
        )


def unit(name: str) -> str:
    """What the rows of a file are counted in."""
    return "row" if name == INLINE else "line"


def counted(count: int, noun: str) -> str:
    """A number with its noun."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def listed(labels: Sequence[str]) -> str:
    """The first labels, and how many more there are."""
    named = ", ".join(map(repr, labels[:SHOWN]))
    more = len(labels) - SHOWN
    return named if more <= 0 else f"{named} and {more:,} more"
