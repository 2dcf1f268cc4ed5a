"""The folder that runs are kept in: a line for each finished one, checkpoints of the others."""

import os
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from capsules.errors import DataError, DataFault, OptionError, TrainingError, TrainingFault
from capsules.reproduce.record import Configuration, Key, Row

CONFIGURATION = "configuration.json"
RUNS = "runs.jsonl"
CHECKPOINTS = "checkpoints"
CAPSULES = "capsules"


class Journal:
    """The finished runs of one configuration.

    A line is written whole and flushed to the disk before the next run begins, so a crash costs at
    most the run that it interrupts, and that one goes on from its checkpoint.

    Attributes:
        folder: where it is kept.
        rows: the finished runs, in the order in which they were.
    """

    def __init__(self, folder: Path, configuration: Configuration) -> None:
        """Open a folder, or make it.

        Raises:
            OptionError: it holds runs of another configuration.
            DataError: it holds a line that is no run.
            TrainingError: it cannot be written to.
        """
        self.folder = folder
        self.configuration = configuration
        path = folder / CONFIGURATION
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if path.exists():
                require_same(path, configuration)
            else:
                write(path, configuration.model_dump_json(indent=1) + "\n")
            mend(folder / RUNS)
        except OSError as error:
            raise unwritable(folder, error) from error
        self.rows = read_rows(folder / RUNS)

    @property
    def keys(self) -> set[Key]:
        """What the finished runs are of."""
        return {row.key for row in self.rows}

    def find(self, key: Key, identity: str) -> Row | None:
        """The finished run of a set, method and seed; None where it has yet to be made.

        Raises:
            OptionError: there is one with other rows or learning rates.
        """
        found = next((row for row in self.rows if row.key == key), None)
        if found is not None and found.identity != identity:
            task, method, seed = key
            raise OptionError(
                f"{self.folder} has a run of {task}, {method}, seed {seed} on other rows or with "
                f"other learning rates ({listed(found.rates)}); name another --output.",
                field="output",
            )
        return found

    def require_rates(self, method: str, rates: Sequence[float]) -> None:
        """Refuse to mix runs of a method that had different learning rates to choose from.

        Raises:
            OptionError: naming both.
        """
        for row in self.rows:
            if row.method == method and row.rates != tuple(rates):
                raise OptionError(
                    f"{self.folder} has runs of {method} with the learning rates "
                    f"{listed(row.rates)}, not {listed(rates)}; repeat those, or name another "
                    "--output.",
                    field="learning_rates",
                )

    def add(self, row: Row) -> None:
        """Keep a finished run.

        Raises:
            TrainingError: it cannot be written.
        """
        try:
            with (self.folder / RUNS).open("a", encoding="utf-8") as file:
                file.write(row.model_dump_json() + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise unwritable(self.folder, error) from error
        self.rows.append(row)

    def checkpoint(self, key: Key, rate: float) -> Path:
        """Where an unfinished run at one learning rate is kept."""
        return self.folder / CHECKPOINTS / f"{run_name(key)}-{rate:g}.pt"

    def capsule(self, key: Key) -> Path:
        """Where a trained capsule is kept."""
        return self.folder / CAPSULES / f"{run_name(key)}.safetensors"

    def keep_capsule(self, key: Key, data: bytes) -> None:
        """Keep a trained capsule.

        Raises:
            TrainingError: it cannot be written.
        """
        path = self.capsule(key)
        try:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
        except OSError as error:
            raise unwritable(self.folder, error) from error

    def write(self, name: str, text: str) -> Path:
        """Write a file beside the runs, in place of an older one.

        Raises:
            TrainingError: it cannot be written.
        """
        path = self.folder / name
        try:
            write(path, text)
        except OSError as error:
            raise unwritable(self.folder, error) from error
        return path


def run_name(key: Key) -> str:
    """A run's name for a person and at the beginning of its files' names."""
    return "-".join(map(str, key))


def read_rows(path: Path) -> list[Row]:
    """The runs in a file, none where there is no file.

    Raises:
        DataError: a line is no run.
    """
    if not path.exists():
        return []
    found = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            found.append(Row.model_validate_json(line))
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]
            place = ".".join(map(str, fault["loc"])) or "line"
            raise DataError(
                f"{path}, line {number}, is no finished run ({place}: {fault['msg']}); remove the "
                "line, and its run is made again.",
                code=DataFault.UNREADABLE_FILE,
                field="output",
            ) from error
    return found


def mend(path: Path) -> None:
    """Cut off a last line that a crash left unfinished."""
    if not path.exists():
        return
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if whole != data:
        with path.open("r+b") as file:
            file.truncate(len(whole))


def require_same(path: Path, configuration: Configuration) -> None:
    """Refuse a folder of another configuration.

    Raises:
        OptionError: naming the first difference, or the file where it cannot be read.
    """
    try:
        kept = Configuration.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise OptionError(
            f"{path} is not the configuration of a comparison; name another --output.",
            field="output",
        ) from error
    if kept.backbone.fingerprint != configuration.backbone.fingerprint:
        raise OptionError(
            f"{path.parent} holds runs on another backbone, {kept.backbone.id}; name another "
            "--output.",
            field="output",
        )
    now = configuration.settings.model_dump()
    for name, value in kept.settings.model_dump().items():
        if now[name] != value:
            raise OptionError(
                f"{path.parent} holds runs with {name} {value}, not {now[name]}; repeat that, or "
                "name another --output.",
                field="output",
            )


def write(path: Path, text: str) -> None:
    """Write a file so that it is either the old one or the new one."""
    passing = path.with_name(f".{path.name}.partial")
    passing.write_text(text, encoding="utf-8")
    passing.replace(path)


def listed(rates: Sequence[float]) -> str:
    """Learning rates for a person."""
    return ", ".join(f"{rate:g}" for rate in rates)


def unwritable(folder: Path, error: OSError) -> TrainingError:
    """The error for a folder that cannot be used; finished runs are kept."""
    return TrainingError(
        f"{folder} cannot be written to ({error.strerror}); name another --output or free some "
        "space. Finished runs are kept.",
        code=TrainingFault.UNWRITABLE_OUTPUT,
        field="output",
    )
