"""Times for people."""

from datetime import UTC, datetime
from itertools import pairwise

UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))

PRECISE = 10
"""From so many of a unit on, the next smaller one does not matter."""


def span(seconds: float) -> str:
    """About how long something is: in its largest unit, and the next one where that is much."""
    whole = max(round(seconds), 0)
    for (size, unit), (next_size, next_unit) in pairwise(UNITS):
        if whole >= size:
            rest = whole % size // next_size if whole < PRECISE * size else 0
            return f"{whole // size} {unit}" + (f" {rest} {next_unit}" if rest else "")
    return f"{whole} {UNITS[-1][1]}"


def moment(timestamp: int | None) -> str | None:
    """A Unix time as ISO 8601 in UTC, as the rest of the server's times are."""
    if timestamp is None:
        return None
    return datetime.fromtimestamp(timestamp, UTC).isoformat().replace("+00:00", "Z")


def wall_clock(timestamp: int) -> str:
    """The time of day here."""
    return datetime.fromtimestamp(timestamp).astimezone().strftime("%H:%M:%S")
