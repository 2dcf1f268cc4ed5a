import json

import pytest
from rich.text import Text

from capsules.cli.output import Output, cell, complain, count, printable, say, warn

ESCAPE = "\x1b[31mred\x1b[0m"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("été 🇨🇭 👩‍💻 עברית", "été 🇨🇭 👩‍💻 עברית"),
        (ESCAPE, "\\x1b[31mred\\x1b[0m"),
        ("a\tb\nc\rd\0", "a\\tb\\nc\\rd\\x00"),
        ("\ud800", "\\ud800"),
        ("\x9b", "\\x9b"),
    ],
)
def test_nothing_that_steers_a_terminal_is_printed(text, shown):
    assert printable(text) == shown


def test_kept_control_characters_stay():
    assert printable("a\nb\tc", keep="\n") == "a\nb\\tc"


@pytest.mark.parametrize(("value", "shown"), [(None, ""), (0, "0"), ("x\ty", "x\\ty")])
def test_cell(value, shown):
    assert cell(value) == shown


@pytest.mark.parametrize(
    ("number", "shown"), [(0, "0 rows"), (1, "1 row"), (2, "2 rows"), (1234, "1,234 rows")]
)
def test_count(number, shown):
    assert count(number, "row") == shown


def show(output: Output) -> None:
    output.show(document={"a": "é"}, rows=[("a", "x\ty"), ("b", None)], table=lambda: Text("[x]"))


def test_a_pipe_gets_lines_of_tab_separated_cells(capsys):
    show(Output(as_json=False))
    assert capsys.readouterr().out == "a\tx\\ty\nb\t\n"


def test_a_terminal_gets_a_table(capsys, monkeypatch):
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    show(Output(as_json=False))
    assert capsys.readouterr().out == "[x]\n"


@pytest.mark.parametrize("terminal", ["0", "1"])
def test_json_is_the_same_everywhere(terminal, capsys, monkeypatch):
    monkeypatch.setenv("TTY_COMPATIBLE", terminal)
    show(Output(as_json=True))
    written = capsys.readouterr().out
    assert json.loads(written) == {"a": "é"}
    assert written.isascii()


def test_messages_go_to_standard_error_in_whole_lines(capsys):
    long = "x" * 300
    say(f"{long} [bold]{ESCAPE}")
    warn("careful")
    complain("it broke", "broken")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        f"{long} [bold]\\x1b[31mred\\x1b[0m",
        "warning: careful",
        "error [broken]: it broke",
    ]
