"""What every test has: one thread for tensors, and the embedded backbone, loaded once."""

import pytest
import torch

from capsules.backbones.base import LoadedBackbone
from capsules.backbones.load import load


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """On tiny tensors more threads only wait for each other; on a busy machine, twenty times over."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def embedded() -> LoadedBackbone:
    """On the CPU in float32, as its capsules were trained."""
    return load("embedded", device="cpu", dtype="float32")
