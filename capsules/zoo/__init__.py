"""The capsules that ship with the embedded backbone, and how they were trained."""

from importlib.resources import files
from importlib.resources.abc import Traversable


def artefacts() -> list[Traversable]:
    """The shipped capsule files, by task name."""
    folder = files("capsules.zoo") / "artefacts"
    found = [file for file in folder.iterdir() if file.name.endswith(".safetensors")]
    return sorted(found, key=lambda file: file.name)
