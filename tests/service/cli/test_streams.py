"""Files without end, and readers that go."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from service.cli.texts import MAX_LINE_BYTES
from tests.support.commands import COMMAND, PATIENCE_S, environment, invoke, start
from tests.support.toy_rows import toy_file

pytestmark = pytest.mark.timeout(PATIENCE_S)

BROKEN_PIPE = 141


def without_a_reader(*arguments: str | Path, stdin: str = "") -> tuple[int, str]:
    """Exit code and messages of a command whose standard output nobody reads."""
    ours, theirs = os.pipe()
    os.close(ours)
    try:
        done = subprocess.run(
            [*COMMAND, *map(str, arguments)],
            env=environment(),
            input=stdin,
            stdout=theirs,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE_S,
        )
    finally:
        os.close(theirs)
    return done.returncode, done.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["list", "--help"], []])
def test_help_leaves_without_a_word_where_nobody_reads(arguments: list[str]) -> None:
    assert without_a_reader(*arguments) == (BROKEN_PIPE, "")


def test_commands_leave_without_a_word_where_nobody_reads(url: str, file: Path) -> None:
    for arguments in (
        ["list", "--url", url],
        ["list", "--json", "--url", url],
        ["list", "trec", "--url", url],
        ["push", file, "--url", url],
        ["rm", "new", "--url", url],
    ):
        assert without_a_reader(*arguments) == (BROKEN_PIPE, ""), arguments
    # What was asked for is done all the same.
    assert invoke("list", "--url", url).stdout.split("\t")[0] == "trec"


def test_the_first_line_is_what_a_pipe_of_one_line_gets(url: str) -> None:
    done = subprocess.run(
        f"{COMMAND[0]} classify trec --batch-size 1 --url {url} | head -n 1; echo ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        env=environment(),
        input="a text\n" * 2000,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    answer, code = done.stdout.splitlines()
    assert (answer.split("\t")[0] in ("no", "yes"), code, done.stderr) == (True, "141", "")


@dataclass(frozen=True)
class Endless:
    """A command on a file that has no end, and what it is to say."""

    arguments: list[str | Path]
    path: Path
    code: str

    def check(self, exit_code: int, output: str, messages: str) -> None:
        assert exit_code == 1
        assert messages.startswith(f"error [{self.code}]: {self.path} ")
        assert messages.count("\n") == 1
        pushed = self.arguments[0] == "push"
        assert output == (f"{self.path}\tfailed\t\t\t\t{self.code}\n" if pushed else "")


@pytest.fixture
def endless(command: str, content: str, nowhere: str, tmp_path: Path) -> Endless:
    path = tmp_path / "file.safetensors"
    if content == "sparse":
        with path.open("wb") as file:
            file.truncate(40 * 1024**3)
    elif content == "pipe":
        os.mkfifo(path)
    else:
        path = Path(content)
    code = "file_too_large" if content == "sparse" else "unreadable_file"
    more: dict[str, list[str | Path]] = {
        "inspect": [],
        "evaluate": [toy_file(tmp_path)],
        "push": ["--url", nowhere],
    }
    return Endless([command, path, *more[command]], path, code)


@pytest.mark.parametrize("content", ["sparse", "/dev/zero", "pipe"])
@pytest.mark.parametrize("command", ["inspect", "evaluate", "push"])
def test_a_file_without_end_is_one_line(endless: Endless) -> None:
    result = invoke(*endless.arguments)
    endless.check(result.exit_code, result.stdout, result.stderr)


@pytest.mark.parametrize(
    ("command", "content"), [("inspect", "pipe"), ("evaluate", "sparse"), ("push", "/dev/zero")]
)
def test_a_file_without_end_does_not_hold_up_a_process(endless: Endless, tmp_path: Path) -> None:
    process = start(endless.arguments, tmp_path)
    output, messages = process.communicate(timeout=PATIENCE_S)
    endless.check(process.returncode, output, messages)


def test_a_file_that_cannot_be_read_does_not_stop_the_others(url: str, file: Path) -> None:
    result = invoke("push", "/dev/zero", file, "--url", url, "--json")
    assert result.exit_code == 1
    first, second = json.loads(result.stdout)
    assert (first["status"], first["error"]["code"]) == ("failed", "unreadable_file")
    assert (second["status"], second["task"]) == ("created", "new")


def test_a_line_without_end_is_one_text_that_fails(url: str) -> None:
    lines = b"good\n" + b"x" * (MAX_LINE_BYTES + 1) + b"\ngood\n"
    result = invoke("classify", "trec", "--url", url, "--json", stdin=lines)
    assert result.exit_code == 1
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    codes = [row["error"] and row["error"]["code"] for row in rows]
    assert codes == [None, "text_too_long", None]
