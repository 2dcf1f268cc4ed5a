"""The state of a run between two epochs, on disk."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
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


def save(checkpoint: Checkpoint, path: Path) -> None:
    """Write so that a crash leaves either the old file or the new one.

    Raises:
        TrainingError: it cannot be written.
    """
    passing = path.with_suffix(".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with passing.open("wb") as file:
            torch.save(asdict(checkpoint), file)
            file.flush()
            os.fsync(file.fileno())
        passing.replace(path)
    except (OSError, RuntimeError) as error:
        raise TrainingError(
            f"The checkpoint {path} cannot be written: {error}. Free some space or choose another "
            "folder; the last finished epoch is kept.",
            code=TrainingFault.UNWRITABLE_OUTPUT,
            field="checkpoint",
        ) from error


def load(path: Path, identity: str) -> Checkpoint | None:
    """The checkpoint at `path`, or None where there is none.

    Raises:
        TrainingError: it cannot be read, or belongs to a run with other options or data.
    """
    if not path.exists():
        return None
    try:
        check_sums(path)
        checkpoint = Checkpoint(**torch.load(path, map_location="cpu", weights_only=True))
    # Every error, since a damaged file surfaces as whatever the unpickler trips over.
    except Exception as error:
        raise TrainingError(
            f"The checkpoint {path} cannot be read: {error}. Delete it to start over.",
            code=TrainingFault.CHECKPOINT_MISMATCH,
            field="checkpoint",
        ) from error
    if checkpoint.identity != identity:
        raise TrainingError(
            f"The checkpoint {path} belongs to a run with other options, data or backbone. Delete "
            "it to start over, or repeat the run that wrote it.",
            code=TrainingFault.CHECKPOINT_MISMATCH,
            field="checkpoint",
        )
    return checkpoint


def check_sums(path: Path) -> None:
    """Compare a file's contents with the checksums in it, which torch does not do.

    Raises:
        BadZipFile: they differ, or the file is no archive as torch writes it.
    """
    with ZipFile(path) as archive:
        # What is marked as a folder torch takes for empty, and gives whatever is in memory.
        folders = (one.filename for one in archive.infolist() if one.external_attr & FOLDER)
        damaged = archive.testzip() or next(folders, None)
    if damaged is not None:
        raise BadZipFile(f"{damaged} is damaged")
