"""The state of a run between two epochs, and where it is kept."""

import io
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol
from zipfile import BadZipFile, ZipFile

import torch
from torch import Tensor

from capsules.errors import TrainingError, TrainingFault

# The bit of a zip entry's attributes that marks a folder.
FOLDER = 0x10


@dataclass(slots=True)
class Checkpoint:
    """Everything the next epoch depends on.

    Attributes:
        identity: digest of options, data and backbone; another run's is not resumed.
        epoch: epochs finished.
        tensors: learned tensors after that epoch.
        optimizer: its state.
        schedule: the learning rate schedule's state.
        best: learned tensors of the best epoch.
        reports: one record an epoch, as plain values.
        seconds: wall-clock time so far.
    """

    identity: str
    epoch: int
    tensors: Mapping[str, Tensor]
    optimizer: Mapping[str, Any]
    schedule: Mapping[str, Any]
    best: Mapping[str, Tensor]
    reports: list[dict[str, Any]]
    seconds: float


class Keeper(Protocol):
    """Keeps the checkpoint of one run, the last one only.

    What it says of itself stands in messages for people.
    """

    @property
    def name(self) -> str:
        """What it keeps, as the first words of a sentence: `The checkpoint run.pt`."""
        ...

    @property
    def to_start_over(self) -> str:
        """What to do if it cannot be taken up, as a sentence."""
        ...

    @property
    def to_change(self) -> str:
        """What to do before a run with other options, as a sentence; empty where nothing is."""
        ...

    def load(self) -> bytes | None:
        """What was saved last, or None where nothing was.

        Raises:
            OSError: it cannot be read.
        """
        ...

    def save(self, data: bytes) -> None:
        """Keep this in place of what was saved before, so that a crash leaves one of the two.

        Raises:
            TrainingError: it cannot be kept; what was saved before still is.
        """
        ...


@dataclass(frozen=True, slots=True)
class FileKeeper:
    """Keeps a checkpoint in a file of its own.

    Attributes:
        path: the file; its folder is made where it is missing.
    """

    path: Path

    @property
    def name(self) -> str:
        """See `Keeper.name`."""
        return f"The checkpoint {self.path}"

    @property
    def to_start_over(self) -> str:
        """See `Keeper.to_start_over`."""
        return "Delete it to start over."

    @property
    def to_change(self) -> str:
        """See `Keeper.to_change`."""
        return f"Delete the checkpoint {self.path} first, since it belongs to a run with these."

    def load(self) -> bytes | None:
        """See `Keeper.load`."""
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return None

    def save(self, data: bytes) -> None:
        """See `Keeper.save`."""
        passing = self.path.with_suffix(".partial")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with passing.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            passing.replace(self.path)
        except OSError as error:
            raise TrainingError(
                f"The checkpoint {self.path} cannot be written: {error}. Free some space or choose "
                "another folder; the last finished epoch is kept.",
                code=TrainingFault.UNWRITABLE_OUTPUT,
                field="checkpoint",
            ) from error


def save(checkpoint: Checkpoint, keeper: Keeper) -> None:
    """Keep a checkpoint in place of the one before.

    Raises:
        TrainingError: it cannot be kept.
    """
    buffer = io.BytesIO()
    torch.save(asdict(checkpoint), buffer)
    keeper.save(buffer.getvalue())


def load(keeper: Keeper, identity: str) -> Checkpoint | None:
    """The checkpoint that is kept, or None where there is none.

    Raises:
        TrainingError: it cannot be read, or belongs to a run with other options or data.
    """
    try:
        data = keeper.load()
        if data is None:
            return None
        check_sums(data)
        checkpoint = Checkpoint(
            **torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        )
    # Every error, since damaged bytes surface as whatever the unpickler trips over.
    except Exception as error:
        raise TrainingError(
            f"{keeper.name} cannot be read: {error}. {keeper.to_start_over}",
            code=TrainingFault.CHECKPOINT_MISMATCH,
            field="checkpoint",
        ) from error
    if checkpoint.identity != identity:
        raise TrainingError(
            f"{keeper.name} belongs to a run with other options, data or backbone. "
            f"{keeper.to_start_over.rstrip('.')}, or repeat the run that wrote it.",
            code=TrainingFault.CHECKPOINT_MISMATCH,
            field="checkpoint",
        )
    return checkpoint


def check_sums(data: bytes) -> None:
    """Compare the parts of a checkpoint with the checksums in it, which torch does not do.

    Raises:
        BadZipFile: they differ, or this is no archive as torch writes it.
    """
    with ZipFile(io.BytesIO(data)) as archive:
        # What is marked as a folder torch takes for empty, and gives whatever is in memory.
        folders = (one.filename for one in archive.infolist() if one.external_attr & FOLDER)
        damaged = archive.testzip() or next(folders, None)
    if damaged is not None:
        raise BadZipFile(f"{damaged} is damaged")
