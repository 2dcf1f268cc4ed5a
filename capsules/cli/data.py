"""Reads data files for a command, and tells of the rows it had to leave out."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from capsules.cli.failure import UsageError
from capsules.cli.output import count, warn
from capsules.data.base import Dataset
from capsules.data.duplicates import duplicates, overlap
from capsules.data.limits import Limits
from capsules.data.reader import load
from capsules.errors import ArtefactError
from capsules.template import Template

NUMBER = re.compile(r"\d+(\.\d+)?")


@dataclass(frozen=True, slots=True)
class Reader:
    """How the rows of a command's data files are read.

    Attributes:
        fields: names of the inputs.
        label_field: name of the label.
        limits: how much may be bad.
    """

    fields: Sequence[str]
    label_field: str
    limits: Limits

    def read(self, path: Path, *, labels: Sequence[str] | None = None) -> Dataset:
        """The usable rows of a file; the others are named by their line.

        Raises:
            DataError: too many are not usable, or the file is not.
            OptionError: the label's name is an input's too.
        """
        dataset = load(
            path,
            fields=self.fields,
            label_field=self.label_field,
            labels=labels,
            limits=self.limits,
        )
        if dataset.bad_rows:
            told = "".join(f"\n  {problem}" for problem in dataset.problems)
            more = "" if len(dataset.problems) == dataset.bad_rows else "\n  and so on"
            warn(f"{path}: {count(dataset.bad_rows, 'row')} left out:{told}{more}")
        return dataset


def limits_from(max_bad_rows: str | None) -> Limits:
    """The limits that an option's text means: a count, or a fraction where it has a point.

    Raises:
        UsageError: it is no number.
        OptionError: it is out of range.
    """
    if max_bad_rows is None:
        return Limits()
    if not NUMBER.fullmatch(max_bad_rows):
        raise UsageError(
            f"--max-bad-rows {max_bad_rows!r} is no number; give a count such as 5, or a "
            "fraction such as 0.02."
        )
    fraction = "." in max_bad_rows
    return Limits(max_bad_rows=float(max_bad_rows) if fraction else int(max_bad_rows))


def fields_of(template: str) -> tuple[str, ...]:
    """The inputs that the option `--template` names.

    Raises:
        UsageError: it is malformed.
    """
    try:
        return Template(template).fields
    except ArtefactError as error:
        raise UsageError(error.message, code=error.code) from error


def warn_of_contradictions(train: Dataset) -> None:
    """Tell of inputs that the training rows give several labels."""
    found = sum(group.conflicting for group in duplicates(train))
    if found:
        warn(
            f"{count(found, 'text')} in the training rows under more than one label; the capsule "
            "cannot be right about all of them."
        )


def warn_of_overlap(train: Dataset, other: Dataset, name: str) -> None:
    """Tell of rows that measure nothing, since they were trained on."""
    found = len(overlap(train, other))
    if found:
        warn(
            f"{found:,} of the {len(other):,} {name} rows occur among the training rows too; "
            "accuracy on them says nothing about new texts."
        )
