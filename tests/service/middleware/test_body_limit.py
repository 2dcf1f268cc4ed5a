import pytest

from service.middleware.body_limit import declares_more


@pytest.mark.parametrize("length", [b"11", b"4294967296", b"9" * 5000])
def test_a_length_above_the_limit_is_told(length: bytes) -> None:
    assert declares_more(length, 10)


@pytest.mark.parametrize("length", [b"10", b"0", b"nonsense", b"-1", b""])
def test_other_lengths_are_none_of_its_affair(length: bytes) -> None:
    assert not declares_more(length, 10)
