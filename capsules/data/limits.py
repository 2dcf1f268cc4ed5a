"""How much of a file is read, and how much of it may be bad."""

from dataclasses import dataclass

from capsules.errors import OptionError


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on reading one file.

    Attributes:
        max_bad_rows: unusable rows that are tolerated: a count (int), a fraction of all rows
            (float), or None for 20 rows or 1 % of the rows, whichever is more, but never more than
            a quarter of the rows.
        max_reported: unusable rows that are kept and named in messages.
        max_bytes: size of the file once unpacked.
        max_rows: rows, good and bad.

    Raises:
        OptionError: a bound is out of range.
    """

    max_bad_rows: int | float | None = None
    max_reported: int = 20
    max_bytes: int = 1024**3
    max_rows: int = 2_000_000

    def __post_init__(self) -> None:
        bad = self.max_bad_rows
        if bad is not None and (bad < 0 or (isinstance(bad, float) and not bad <= 1.0)):
            raise OptionError(
                f"max_bad_rows is {bad}; give a count of 0 or more, or a fraction from 0.0 to 1.0.",
                field="max_bad_rows",
            )
        for name in ("max_reported", "max_bytes", "max_rows"):
            if getattr(self, name) < 1:
                raise OptionError(f"{name} must be at least 1.", field=name)

    def allowed(self, rows: int) -> int:
        """Unusable rows tolerated in a file of `rows` rows."""
        if self.max_bad_rows is None:
            return min(max(20, rows // 100), rows // 4)
        if isinstance(self.max_bad_rows, float):
            return int(rows * self.max_bad_rows)
        return self.max_bad_rows

    def exhausted(self, bad_rows: int) -> bool:
        """Whether `bad_rows` are too many however long the file goes on."""
        return isinstance(self.max_bad_rows, int) and bad_rows > self.max_bad_rows


DEFAULT_LIMITS = Limits()
