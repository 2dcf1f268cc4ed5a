from typing import Any

import pytest

from service.callers import Callers, caller_name

NAME = "sha256:bffde20413347b7a00e1363de3f97ca69e419dc0aea55f4a4a75018fab3a0e8e"
"""Of the credentials `Bearer secret`, as `printf %s 'Bearer secret' | sha256sum` tells."""


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


def test_authorization_tells_wherever_an_api_key_stands() -> None:
    callers = Callers()
    token, keys = (b"authorization", b"Bearer token"), [(b"x-api-key", one) for one in (b"a", b"b")]
    known = {
        callers.key(scope(*headers)) for key in keys for headers in ((key, token), (token, key))
    }
    assert known == {callers.key(scope(token))}
    assert callers.key(scope(*keys)) == callers.key(scope(keys[0]))


def test_without_credentials_the_address_tells() -> None:
    callers = Callers()
    assert callers.key(scope()) == callers.key(scope(client=("10.1.2.3", 99))) == "10.1.2.3"
    assert callers.key(scope((b"authorization", b""))) == "10.1.2.3"
    assert callers.key(scope((b"x-forwarded-for", b"10.8.8.8"))) == "10.1.2.3"


def test_a_connection_without_address_is_one_caller() -> None:
    assert Callers().key(scope(client=None)) == ""


@pytest.mark.parametrize("name", [b"authorization", b"x-api-key"])
def test_a_caller_that_is_named_by_its_credentials_has_that_name(name: bytes) -> None:
    callers = Callers({"10.1.2.3": 2.0, NAME: 3.0})
    assert callers.key(scope((name, b"Bearer secret"))) == NAME
    assert callers.key(scope((name, b"bearer secret"))) != NAME
    assert len(callers.key(scope((name, b"Bearer other")))) == 16
    assert callers.key(scope()) == "10.1.2.3"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("10.1.2.3", "10.1.2.3"),
        (" 127.0.0.1 ", "127.0.0.1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("2001:DB8::00AB", "2001:db8::ab"),
        # As a server on `::` is told of a client that comes over IPv4.
        ("::ffff:10.1.2.3", "::ffff:10.1.2.3"),
        (NAME.upper(), NAME),
    ],
)
def test_a_name_is_written_as_it_is_compared(text: str, name: str) -> None:
    assert caller_name(text) == name


@pytest.mark.parametrize(
    "text",
    ["", "secret", "10.1.2", "10.1.2.3.4", "10.1.2.3:80", NAME[:-1], NAME[7:], "::1\0", "ünter"],
)
def test_what_names_no_caller_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ValueError, match="neither an address nor sha256:") as caught:
        caller_name(text)
    assert "secret" not in str(caught.value)
