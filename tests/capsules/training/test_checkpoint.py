import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st

from capsules.errors import TrainingError, TrainingFault
from capsules.training import checkpoint
from capsules.training.checkpoint import Checkpoint, FileKeeper
from tests.support.keepers import InMemoryKeeper


def a_checkpoint(**changes: Any) -> Checkpoint:
    keys = {
        "identity": "mine",
        "epoch": 2,
        "tensors": {"capsule": torch.arange(6.0).reshape(2, 1, 3)},
        "optimizer": {"state": {0: {"step": 3, "RMS": torch.tensor(0.5)}}, "param_groups": []},
        "schedule": {"last_epoch": 3},
        "best": {"capsule": torch.ones(2, 1, 3)},
        "reports": [{"epoch": 1, "train_loss": 0.5}],
        "seconds": 1.5,
    }
    return Checkpoint(**{**keys, **changes})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "er" / "run.pt"


def test_it_survives_the_way_to_disk_and_back(path: Path) -> None:
    saved = a_checkpoint()
    checkpoint.save(saved, FileKeeper(path))
    loaded = checkpoint.load(FileKeeper(path), "mine")
    assert loaded is not None
    assert (loaded.epoch, loaded.seconds, loaded.reports) == (2, 1.5, saved.reports)
    assert torch.equal(loaded.tensors["capsule"], saved.tensors["capsule"])
    assert torch.equal(loaded.best["capsule"], saved.best["capsule"])
    assert loaded.optimizer["state"][0]["step"] == 3
    assert [file.name for file in path.parent.iterdir()] == ["run.pt"]


def test_where_there_is_none_there_is_none(path: Path) -> None:
    assert checkpoint.load(FileKeeper(path), "mine") is None


def test_a_crash_while_writing_leaves_the_old_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint.save(a_checkpoint(epoch=1), FileKeeper(path))

    def crash(file: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", crash)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save(a_checkpoint(epoch=2), FileKeeper(path))
    loaded = checkpoint.load(FileKeeper(path), "mine")
    assert loaded is not None
    assert loaded.epoch == 1


def test_it_is_on_disk_before_it_takes_the_place_of_the_old_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def noted_fsync(file: int) -> None:
        events.append("fsync")
        fsync(file)

    def noted_replace(self: Path, target: Path) -> Path:
        events.append("replace")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    checkpoint.save(a_checkpoint(), FileKeeper(path))
    assert events == ["fsync", "replace"]


def test_it_is_written_as_torch_writes_a_file(path: Path) -> None:
    saved = a_checkpoint()
    checkpoint.save(saved, FileKeeper(path))
    with path.with_name("whole").open("wb") as file:
        torch.save(asdict(saved), file)
    assert path.read_bytes() == path.with_name("whole").read_bytes()


def test_it_can_be_kept_elsewhere_than_in_a_file() -> None:
    keeper = InMemoryKeeper("Forget it.")
    assert checkpoint.load(keeper, "mine") is None
    checkpoint.save(a_checkpoint(epoch=7), keeper)
    loaded = checkpoint.load(keeper, "mine")
    assert loaded is not None
    assert loaded.epoch == 7
    with pytest.raises(TrainingError) as refused:
        checkpoint.load(keeper, "another's")
    assert refused.value.message == (
        "What was kept belongs to a run with other options, data or backbone. Forget it, or repeat "
        "the run that wrote it."
    )
    keeper.data = b"no archive"
    with pytest.raises(TrainingError, match=r"^What was kept cannot be read: .*\. Forget it\.$"):
        checkpoint.load(keeper, "mine")


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(TrainingError, match="choose another folder") as refused:
        checkpoint.save(a_checkpoint(), FileKeeper(tmp_path / "file" / "run.pt"))
    assert (refused.value.code, refused.value.field) == (
        TrainingFault.UNWRITABLE_OUTPUT,
        "checkpoint",
    )


class Trap:
    """Does harm when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("harm",)


@pytest.mark.parametrize(
    "content",
    [{}, {"identity": "mine"}, [1, 2], 5, None, {**vars(Trap()), "trap": Trap()}],
    ids=["empty", "partial", "list", "number", "none", "trap"],
)
def test_what_is_no_checkpoint_is_refused_and_never_run(
    tmp_path: Path, content: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(content, tmp_path / "run.pt")
    with pytest.raises(TrainingError) as refused:
        checkpoint.load(FileKeeper(tmp_path / "run.pt"), "mine")
    assert refused.value.code == TrainingFault.CHECKPOINT_MISMATCH
    assert [file.name for file in tmp_path.iterdir()] == ["run.pt"]


@pytest.mark.parametrize("part", [b"archive/data/0", b"archive/data/2", b"archive/data.pkl"])
def test_a_part_that_is_marked_as_a_folder_is_refused(path: Path, part: bytes) -> None:
    """One bit, and PyTorch gives what happened to be in memory."""
    checkpoint.save(a_checkpoint(), FileKeeper(path))
    content = bytearray(path.read_bytes())
    # The archive's directory, at its end, has a part's attributes 8 bytes before its name.
    content[content.rindex(part) - 8] ^= 0x10
    path.write_bytes(content)
    with pytest.raises(TrainingError, match="is damaged") as refused:
        checkpoint.load(FileKeeper(path), "mine")
    assert refused.value.code == TrainingFault.CHECKPOINT_MISMATCH


@given(st.data())
@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_changed_bytes_give_the_same_checkpoint_or_an_error(
    tmp_path: Path, data: st.DataObject
) -> None:
    path = tmp_path / "run.pt"
    saved = a_checkpoint()
    checkpoint.save(saved, FileKeeper(path))
    content = bytearray(path.read_bytes())
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=3)):
        content[place] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        loaded = checkpoint.load(FileKeeper(path), "mine")
    except TrainingError:
        return
    # Only padding between the parts can change unseen.
    assert loaded is not None
    assert torch.equal(loaded.tensors["capsule"], saved.tensors["capsule"])
    assert (loaded.epoch, loaded.reports) == (saved.epoch, saved.reports)
