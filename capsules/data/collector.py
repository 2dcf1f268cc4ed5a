"""Gathers the rows of one file and stops when too many are bad."""

from collections.abc import Sequence

from capsules.core import Example
from capsules.data.base import BLANK, MISSING, Dataset, RowProblem
from capsules.data.limits import Limits
from capsules.errors import DataError, DataFault


class BadRowsError(DataError):
    """A file has more rows that cannot be used than are tolerated.

    Attributes:
        problems: the first of them.
    """

    def __init__(self, message: str, problems: Sequence[RowProblem]) -> None:
        super().__init__(message, code=DataFault.TOO_MANY_BAD_ROWS, field="max_bad_rows")
        self.problems = tuple(problems)


class Collector:
    """The rows of one file, as they come in."""

    def __init__(self, source: str, limits: Limits) -> None:
        self._source = source
        self._limits = limits
        self._examples: list[Example] = []
        self._problems: list[RowProblem] = []
        self._bad_rows = 0
        self._blanks: RowProblem | None = None

    def add(self, item: Example | RowProblem) -> None:
        """Take the next row.

        Raises:
            DataError: there are more rows, or more bad ones, than the limits allow.
        """
        if isinstance(item, RowProblem) and item.reason == BLANK:
            # Blank lines are no fault at the end of a file; only the next row shows where they are.
            first = self._blanks or RowProblem(item.line, item.reason, lines=0)
            self._blanks = RowProblem(first.line, first.reason, lines=first.lines + 1)
            return
        if self._blanks is not None:
            self._add_problem(self._blanks)
            self._blanks = None
        if isinstance(item, RowProblem):
            self._add_problem(item)
        else:
            self._examples.append(item)
        if self._rows > self._limits.max_rows:
            raise DataError(
                f"{self._source} has more than {self._limits.max_rows:,} rows;"
                " take a sample of them or raise max_rows.",
                code=DataFault.TOO_MANY_ROWS,
                field="max_rows",
            )

    def finish(self, labels: Sequence[str] | None) -> Dataset:
        """The data set, once all rows are in.

        Raises:
            DataError: too many rows are bad, or none is usable.
        """
        if self._bad_rows > self._limits.allowed(self._rows):
            raise self._misnamed() or self._too_many_bad()
        if not self._examples:
            raise DataError(
                f"{self._source} has no usable row; give rows with a text and a label.",
                code=DataFault.EMPTY_DATASET,
            )
        return Dataset.of(
            self._examples, labels=labels, problems=self._problems, bad_rows=self._bad_rows
        )

    @property
    def _rows(self) -> int:
        return len(self._examples) + self._bad_rows

    def _add_problem(self, problem: RowProblem) -> None:
        self._bad_rows += problem.lines
        if len(self._problems) < self._limits.max_reported:
            self._problems.append(problem)
        if self._limits.exhausted(self._bad_rows):
            raise self._too_many_bad()

    def _misnamed(self) -> BadRowsError | None:
        """The error for a field that no row has, which is no fault of the rows."""
        reasons = {problem.reason for problem in self._problems}
        reason = next(iter(reasons))
        if self._examples or len(reasons) > 1 or not reason.endswith(MISSING):
            return None
        return BadRowsError(
            f"{self._source}: none of the {self._rows:,} rows can be used: {reason}; check the names"
            " in `template` and `label_field` against those of the rows.",
            self._problems,
        )

    def _too_many_bad(self) -> BadRowsError:
        reported = "\n".join(f"  {problem}" for problem in self._problems)
        return BadRowsError(
            f"{self._source}: {self._bad_rows:,} of the {self._rows:,} rows read cannot be used,"
            f" and max_bad_rows allows {self._limits.allowed(self._rows):,}; mend or remove them:"
            f"\n{reported}",
            self._problems,
        )
