"""How large the body of a request may be."""

from collections.abc import Callable

from starlette.types import Scope

MAX_DIGITS = 18

Limit = Callable[[Scope], int]
"""The most bytes that the body of a request may have."""


def declares_more(length: bytes, limit: int) -> bool:
    """Whether a Content-Length is above the limit; one that is no number is the parser's affair."""
    # The digits are counted first: integers of any length are slow to read.
    return length.isdigit() and (len(length) > MAX_DIGITS or int(length) > limit)
