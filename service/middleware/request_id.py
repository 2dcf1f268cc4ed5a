"""The id by which logs, errors and the reply name a request."""

import re
from collections.abc import Mapping
from random import getrandbits

from starlette.types import Scope

HEADER = b"x-request-id"
ACCEPTABLE_ID = re.compile(rb"[ -~]{1,128}")


def request_id(scope: Scope, headers: Mapping[bytes, bytes]) -> str:
    """The client's id for a request where it is fit to be logged and echoed, else a new one.

    Args:
        scope: the request's.
        headers: the same headers by name, which tell sooner that there is none.
    """
    if HEADER in headers:
        for name, value in scope["headers"]:
            if name == HEADER and ACCEPTABLE_ID.fullmatch(value):
                return str(value, "ascii")
    # Not from the system's source of randomness: to be one of a kind is enough.
    return f"{getrandbits(128):032x}"
