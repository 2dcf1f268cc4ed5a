"""Checks of a caller's values, before the database is troubled with them."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, get_args

from service.store.base import Source
from service.store.errors import InvalidValue


def json_object(value: Mapping[str, Any], name: str = "manifest") -> dict[str, Any]:
    """Return an object as it will be read back.

    Raises:
        InvalidValue: If it has no representation in JSON.
    """
    try:
        parsed: dict[str, Any] = json.loads(json.dumps(dict(value), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValue(
            f"{name}: not representable in JSON ({error}); use plain objects, lists, strings, "
            "booleans and finite numbers"
        ) from error
    return parsed


def check_digest(digest: str, artefact: bytes) -> None:
    """Check that a digest is that of the bytes.

    Raises:
        InvalidValue: If it is not.
    """
    actual = hashlib.sha256(artefact).hexdigest()
    if digest != actual:
        raise InvalidValue(
            f"digest: {digest!r} is not the SHA-256 of the artefact, which is {actual!r} in "
            "lower-case hex; pass that"
        )


def check_source(source: Source) -> None:
    """Check that a source is one of those known.

    Raises:
        InvalidValue: If it is not.
    """
    if source not in get_args(Source):
        raise InvalidValue(f"source: {source!r} is none of {', '.join(get_args(Source))}; use one")


def at_least_one(name: str, value: int) -> None:
    """Check that a count is positive.

    Raises:
        InvalidValue: If it is below 1.
    """
    if value < 1:
        raise InvalidValue(f"{name}: {value} is below 1; ask for at least 1")
