from typing import Any

import pytest

from service.callers import Callers


def scope(*headers: tuple[bytes, bytes], client: tuple[str, int] | None = ("10.1.2.3", 1)) -> Any:
    return {"type": "http", "headers": list(headers), "client": client}


@pytest.mark.parametrize("name", [b"authorization", b"x-api-key"])
def test_credentials_are_known_again_and_cannot_be_read_out(name: bytes) -> None:
    callers = Callers()
    key = callers.key(scope((b"host", b"x"), (name, b"Bearer secret")))
    assert key == callers.key(scope((name, b"Bearer secret"), client=("10.9.9.9", 2)))
    assert key != callers.key(scope((name, b"Bearer other")))
    assert "secret" not in key
    assert len(key) == 16
    assert key != Callers().key(scope((name, b"Bearer secret")))


def test_without_credentials_the_address_tells() -> None:
    callers = Callers()
    assert callers.key(scope()) == callers.key(scope(client=("10.1.2.3", 99))) == "10.1.2.3"
    assert callers.key(scope((b"authorization", b""))) == "10.1.2.3"
    assert callers.key(scope((b"x-forwarded-for", b"10.8.8.8"))) == "10.1.2.3"


def test_a_connection_without_address_is_one_caller() -> None:
    assert Callers().key(scope(client=None)) == ""
