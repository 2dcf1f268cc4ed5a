import os
from pathlib import Path

import pytest

from capsules.artefact import disk
from capsules.artefact.disk import MAX_FILE_BYTES, read_bytes
from capsules.artefact.file import dump, read
from capsules.errors import ArtefactError
from tests.support.capsules import random_capsule
from tests.support.claimed import INFO


def refusal(path: Path, code: str) -> str:
    with pytest.raises(ArtefactError) as refused:
        read_bytes(path)
    assert refused.value.code == code
    assert str(path) in refused.value.message
    assert refused.value.message.endswith(".")
    return refused.value.message


def sparse(path: Path, size: int) -> Path:
    """A file that claims a size and takes no room."""
    with path.open("wb") as file:
        file.truncate(size)
    return path


def test_a_file_is_read_whole(tmp_path: Path) -> None:
    for size in (0, 1, 1024 * 1024 + 7):
        content = os.urandom(size)
        (tmp_path / "file").write_bytes(content)
        assert read_bytes(tmp_path / "file") == content


def test_a_link_leads_to_its_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    assert read_bytes(tmp_path / "link") == b"content"


def test_a_file_that_is_larger_than_any_capsule_is_not_read(tmp_path: Path) -> None:
    path = sparse(tmp_path / "large", 40 * 1024**3)
    message = refusal(path, "file_too_large")
    assert f"{MAX_FILE_BYTES:,}" in message
    assert f"{40 * 1024**3:,}" in message


def test_the_limit_is_inclusive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "MAX_FILE_BYTES", 1000)
    assert read_bytes(sparse(tmp_path / "largest", 1000)) == bytes(1000)
    refusal(sparse(tmp_path / "larger", 1001), "file_too_large")


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null"])
def test_a_device_is_no_file(device: str) -> None:
    refusal(Path(device), "unreadable_file")


def test_a_pipe_that_nobody_writes_to_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    refusal(tmp_path / "pipe", "unreadable_file")


def test_a_folder_and_nothing_are_told(tmp_path: Path) -> None:
    assert "directory" in refusal(tmp_path, "unreadable_file")
    assert "No such file" in refusal(tmp_path / "none", "unreadable_file")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everywhere")
def test_a_file_without_permission_is_told(tmp_path: Path) -> None:
    (tmp_path / "secret").touch(mode=0)
    refusal(tmp_path / "secret", "unreadable_file")


def test_a_capsule_is_read_so(tmp_path: Path) -> None:
    path = tmp_path / "capsule"
    path.write_bytes(dump(random_capsule(INFO, task="trec")))
    assert read(path).manifest.task == "trec"
    with pytest.raises(ArtefactError) as refused:
        read(sparse(tmp_path / "large", MAX_FILE_BYTES + 1))
    assert refused.value.code == "file_too_large"
