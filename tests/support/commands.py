"""Runs commands in this process and as processes of their own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from typer.testing import CliRunner, Result

from service.cli import app

ROOT = Path(__file__).resolve().parents[2]
# Wide enough that no cell of a table is broken.
TERMINAL = {"TTY_COMPATIBLE": "1", "COLUMNS": "200", "NO_COLOR": "1"}
# A process of its own imports torch, which takes long on a busy machine.
PATIENCE_S = 300
COMMAND = [str(Path(sys.executable).with_name("capsule"))]
# What one server has exported, others find, in later runs too.
GRAPHS = ROOT / "build" / "graphs"


def invoke(
    *arguments: str | Path, stdin: str | bytes | None = None, terminal: bool = False
) -> Result:
    """Run a command in this process.

    Args:
        arguments: after the command's name.
        stdin: what it reads.
        terminal: whether it believes that its output goes to one.
    """
    settings = {f"CAPSULE_{name}": None for name in ("URL", "BACKBONE", "DEVICE", "THREADS")}
    environment: dict[str, str | None] = {**settings, **(TERMINAL if terminal else {})}
    threads = torch.get_num_threads()
    runner = CliRunner(env=environment)
    result = runner.invoke(app, [str(one) for one in arguments], input=stdin)
    torch.set_num_threads(threads)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def invoke_json(*arguments: str | Path, stdin: str | None = None) -> Any:
    """The JSON document that a command writes; it must succeed."""
    result = invoke(*arguments, "--json", stdin=stdin)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refusal(result: Result, exit_code: int, code: str) -> str:
    """What a command said when it failed as expected: on standard error alone."""
    assert (result.exit_code, result.stdout) == (exit_code, ""), result.output
    assert f"error [{code}]: " in result.stderr, result.stderr
    return result.stderr


def environment() -> dict[str, str]:
    """This process's environment without the server's settings, but for where graphs are."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CAPSULE_")}
    return {**kept, "CAPSULE_GRAPH_DIR": str(GRAPHS)}


def start(arguments: Sequence[str | Path], folder: Path) -> subprocess.Popen[str]:
    """Start a command as a process of its own."""
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
    )


def heed_interrupts() -> None:
    """Undo what a shell does to commands in its background, which is to let them ignore SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def completions(words: str, url: str) -> list[str]:
    """What bash is told to complete."""
    environment = {
        "CAPSULE_URL": url,
        "_CAPSULE_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }
    result = CliRunner(env=environment).invoke(app, [], prog_name="capsule")
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout.split()
