"""Tells those who ask apart, so that none of them takes the whole model."""

from hashlib import blake2b
from secrets import token_bytes

from starlette.types import Scope

CREDENTIALS = frozenset({b"authorization", b"x-api-key"})
KEY_BYTES = 8


class Callers:
    """Gives each caller a key: the same one for every request, and nothing to be read out of it.

    A caller is whoever sends the same credentials; without any, whoever has the same address.
    Nothing is checked: a proxy that checks credentials, and counts for one address, goes in front.
    """

    def __init__(self) -> None:
        """Draw a secret, so that keys tell nobody which credentials they stand for."""
        self.secret = token_bytes(16)

    def key(self, scope: Scope) -> str:
        """The key of who sent a request: of its first credentials, or its address.

        Args:
            scope: the request's. Its address is that of the connection, or what a proxy says that
                the server has been told to trust.
        """
        for name, value in scope["headers"]:
            if name in CREDENTIALS and value:
                return blake2b(value, digest_size=KEY_BYTES, key=self.secret).hexdigest()
        client = scope.get("client")
        return "" if client is None else str(client[0])
