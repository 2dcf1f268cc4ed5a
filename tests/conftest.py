"""The embedded backbone, loaded once for the whole run."""

import pytest

from capsules.backbones.base import LoadedBackbone
from capsules.backbones.load import load


@pytest.fixture(scope="session")
def embedded() -> LoadedBackbone:
    """On the CPU in float32, as its capsules were trained."""
    return load("embedded", device="cpu", dtype="float32")
