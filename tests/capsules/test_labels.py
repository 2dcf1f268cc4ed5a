import pytest

from capsules.labels import is_blank


@pytest.mark.parametrize(
    "label",
    [
        "",
        " ",
        "\t\r\n",
        "\u00a0\u2003\u3000",
        "\u200b",
        "\u200b \u2060\ufeff",
        "\u202e",
        "\x00",
        "\xad",
    ],
)
def test_what_shows_nothing_is_blank(label: str) -> None:
    assert is_blank(label)


@pytest.mark.parametrize(
    "label", ["a", " a ", "\u200ba", "-", "0", "é", "e\u0301", "\u0301", "😀", "שלום"]
)
def test_what_shows_anything_is_not(label: str) -> None:
    assert not is_blank(label)
