from typing import Any

import pytest

from service.middleware.request_id import request_id


def id_for(*headers: tuple[bytes, bytes]) -> str:
    scope: dict[str, Any] = {"headers": list(headers)}
    return request_id(scope, dict(headers))


@pytest.mark.parametrize("given", ["abc-123", "with space", "~" * 128, "!"])
def test_a_fit_id_is_taken(given: str) -> None:
    assert id_for((b"host", b"x"), (b"x-request-id", given.encode())) == given


@pytest.mark.parametrize("given", [b"", b"~" * 129, b"caf\xe9", b"a\x00b", b"a\tb", b"\x1b[31m"])
def test_an_unfit_id_is_replaced(given: bytes) -> None:
    made = id_for((b"x-request-id", given))
    assert made.encode() != given
    assert len(made) == 32


def test_of_several_the_first_fit_one_is_taken() -> None:
    headers = [(b"x-request-id", value) for value in (b"", b"first", b"second")]
    assert id_for(*headers) == "first"


def test_every_request_gets_an_id_of_its_own() -> None:
    assert len({id_for() for _ in range(10)}) == 10
