"""The committed runs as a shell script that makes them again, elsewhere or from nothing."""

import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from capsules.backbones.source import GGUF_SUFFIX
from capsules.reproduce.claims import Files
from capsules.reproduce.journal import RUNS
from capsules.reproduce.page import DATA, commands
from capsules.reproduce.record import Row
from capsules.reproduce.report import RESULTS


def script(
    files: Files,
    inspected: Collection[str],
    docs: Path,
    *,
    data: Path,
    output: Path,
    device: str,
) -> list[str]:
    """A line a command: the runs, a folder for each file, then the page that is about them.

    Args:
        files: the runs that are to be made again.
        inspected: names of those whose capsules were looked into.
        docs: folder of the page.
        data: holds a folder for each set.
        output: gets the folders of runs; what it holds already is gone on with.
        device: where the backbone is to run.
    """
    module = ("python", "-m", "capsules.reproduce")
    lines = []
    for stem, rows in files.items():
        folder = output / stem
        for command in commands(rows):
            words = with_values(command, {DATA: str(data)})
            lines.append([*words, "--device", device, "--output", str(folder)])
        lines.append(["cp", str(folder / RUNS), str(docs / RESULTS / f"{stem}.jsonl")])
        if stem in inspected:
            where = ["--docs", str(docs), "--data", str(data), "--name", stem, "--device", device]
            lines.append([*module, "--inspect", str(folder), *where])
    lines.append([*module, "--report", "--docs", str(docs)])
    return ["set -eu", *map(shlex.join, lines)]


def absent(rows: Sequence[Row]) -> str | None:
    """The backbone's file, where the runs are on one that is not here."""
    specification = rows[0].configuration.backbone.specification
    is_file = Path(specification).suffix == GGUF_SUFFIX
    return specification if is_file and not Path(specification).exists() else None


def with_values(command: str, values: Mapping[str, str]) -> list[str]:
    """A command's words, those that stand for something replaced."""
    return [values.get(word, word) for word in shlex.split(command)]
