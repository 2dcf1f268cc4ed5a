"""The data set that training and evaluation take, whatever file it came from."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from capsules.core import Example
from capsules.errors import DataError, DataFault

# The reason of a row without content, in every format.
BLANK = "blank line"

MISSING = "is missing"
"""How the reason ends for a row that lacks a field."""


@dataclass(frozen=True, slots=True)
class RowProblem:
    """A row that cannot be used.

    Attributes:
        line: number of the physical line, from 1, where the row starts.
        reason: what is wrong with it, for a person.
        lines: physical lines that are lost with it.
    """

    line: int
    reason: str
    lines: int = 1

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Dataset:
    """Labelled examples in file order.

    Build one with `Dataset.of`, which checks the labels and computes the digest.

    Attributes:
        examples: the usable rows.
        labels: distinct labels, as given by the caller or else sorted.
        problems: the first unusable rows of the file.
        bad_rows: number of unusable lines, of which `problems` may show only the first.
        digest: sha256 in hex over the rows' content and order; the file's format, column order and
            compression do not enter.
    """

    examples: tuple[Example, ...]
    labels: tuple[str, ...]
    problems: tuple[RowProblem, ...]
    bad_rows: int
    digest: str

    @classmethod
    def of(
        cls,
        examples: Iterable[Example],
        *,
        labels: Sequence[str] | None = None,
        problems: Iterable[RowProblem] = (),
        bad_rows: int = 0,
    ) -> "Dataset":
        """Gather `examples` into a data set.

        Args:
            examples: the rows, in order.
            labels: the allowed labels in the order to keep; None takes those found, sorted.
            problems: unusable rows to report along.
            bad_rows: number of unusable lines.

        Raises:
            DataError: there is no example, or one has a label that is not among `labels`.
        """
        rows = tuple(examples)
        if not rows:
            raise DataError(
                "The data set has no usable row; give at least one row with a text and a label.",
                code=DataFault.EMPTY_DATASET,
            )
        found = {row.label for row in rows}
        kept = tuple(sorted(found)) if labels is None else tuple(labels)
        if unknown := sorted(found.difference(kept)):
            raise DataError(
                f"Rows have the label {unknown[0]!r}, which is not among the {len(kept)} labels"
                " given; add it to `labels` or leave these rows out.",
                code=DataFault.UNKNOWN_LABEL,
                field="labels",
            )
        return cls(rows, kept, tuple(problems), bad_rows, digest_of(rows))

    def __len__(self) -> int:
        return len(self.examples)

    def __iter__(self) -> Iterator[Example]:
        return iter(self.examples)

    def counts(self) -> dict[str, int]:
        """Rows per label, in the order of `labels`; zero for a label without rows."""
        found = Counter(row.label for row in self.examples)
        return {label: found[label] for label in self.labels}

    def subset(self, positions: Iterable[int]) -> "Dataset":
        """The examples at `positions`, under the same labels."""
        return Dataset.of((self.examples[i] for i in positions), labels=self.labels)

    def require_classes(self) -> None:
        """Refuse a data set that leaves nothing to tell apart.

        Raises:
            DataError: all rows have the same label.
        """
        present = [label for label, count in self.counts().items() if count]
        if len(present) < 2:
            raise DataError(
                f"All {len(self)} rows have the label {present[0]!r};"
                " a classifier needs rows of at least two labels.",
                code=DataFault.ONE_CLASS,
                field="labels",
            )

    def require_divisible(self) -> None:
        """Refuse a data set that cannot be split into rows to learn from and rows to measure by.

        Raises:
            DataError: all rows have the same label, or fewer than two labels have two rows.
        """
        self.require_classes()
        if sum(count > 1 for count in self.counts().values()) < 2:
            raise DataError(
                f"{len(self)} rows are too few to split: at least two labels need two rows or"
                " more; add rows or give a validation file.",
                code=DataFault.SPLIT_TOO_SMALL,
                field="validation",
            )


def require_measured(trained: Mapping[str, int], validated: Mapping[str, int]) -> None:
    """Refuse rows to validate on that lack a label which is trained.

    Args:
        trained: rows by label that are learned from.
        validated: rows by label that the best epoch is chosen by.

    Raises:
        DataError: naming the first such label.
    """
    missing = sorted(label for label, rows in trained.items() if rows and not validated.get(label))
    if missing:
        others = f", and {len(missing) - 1} more have none" if len(missing) > 1 else ""
        raise DataError(
            f"The label {missing[0]!r} has training rows and no validation row{others}, so that"
            " nothing would tell how well it is learned; give each label two rows or more, one of"
            " them to validate on, or leave its rows out.",
            code=DataFault.UNMEASURED_LABEL,
            field="validation",
        )


def digest_of(examples: Iterable[Example]) -> str:
    """Sha256 in hex over the rows as canonical JSON lines: `[label, [[field, text], ...]]`.

    Fields are sorted by name and non-ASCII characters escaped, so any writer can reproduce it.
    """
    digest = hashlib.sha256()
    for example in examples:
        row = [example.label, sorted(example.inputs.items())]
        digest.update(json.dumps(row, separators=(",", ":")).encode("ascii") + b"\n")
    return digest.hexdigest()
