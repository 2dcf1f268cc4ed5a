"""Tells those who ask apart, so that none of them takes the whole model."""

import re
from collections.abc import Collection
from hashlib import blake2b, sha256
from secrets import token_bytes
from socket import AF_INET, AF_INET6, inet_ntop, inet_pton

from starlette.types import Scope

AUTHORIZATION = b"authorization"
API_KEY = b"x-api-key"
KEY_BYTES = 8
DIGEST = "sha256:"
"""Before the digest of credentials, where a caller is named by them."""

DIGEST_NAME = re.compile(rf"{DIGEST}[0-9a-f]{{64}}")


class Callers:
    """Gives each caller a key: the same one for every request, and nothing to be read out of it.

    A caller is whoever sends the same credentials; without any, whoever has the same address.
    Nothing is checked: a proxy that checks credentials, and counts for one address, goes in front.
    """

    def __init__(self, named: Collection[str] = ()) -> None:
        """Draw a secret, so that keys tell nobody which credentials they stand for.

        Args:
            named: callers whose key is their name, see :func:`caller_name`.
        """
        self.secret = token_bytes(16)
        self.digests = frozenset(name for name in named if name.startswith(DIGEST))

    def key(self, scope: Scope) -> str:
        """The key of who sent a request: of its `Authorization`, or `X-Api-Key`, or its address.

        In this order whatever order they come in, since a proxy may have checked the first alone.

        Args:
            scope: the request's. Its address is that of the connection, or what a proxy says that
                the server has been told to trust.
        """
        api_key = b""
        for name, value in scope["headers"]:
            if name == AUTHORIZATION and value:
                return self.key_of(value)
            if name == API_KEY and not api_key:
                api_key = value
        if api_key:
            return self.key_of(api_key)
        client = scope.get("client")
        return "" if client is None else str(client[0])

    def key_of(self, credentials: bytes) -> str:
        """The key of whoever sends these credentials."""
        if self.digests:
            name = DIGEST + sha256(credentials).hexdigest()
            if name in self.digests:
                return name
        return blake2b(credentials, digest_size=KEY_BYTES, key=self.secret).hexdigest()


def caller_name(text: str) -> str:
    """The name of a caller, written as it is compared.

    Args:
        text: an address, or `sha256:` and the hex digest of credentials as they are sent.

    Raises:
        ValueError: it is neither. It is not repeated, as it may be the credentials themselves.
    """
    name = text.strip().lower()
    if DIGEST_NAME.fullmatch(name):
        return name
    for family in (AF_INET, AF_INET6):
        try:
            return inet_ntop(family, inet_pton(family, name))
        except (OSError, ValueError):  # the latter for what no address may hold
            continue
    raise ValueError(
        f"neither an address nor {DIGEST} with the 64 hex digits of what its Authorization or "
        "X-Api-Key holds"
    )
