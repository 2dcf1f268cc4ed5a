"""What every test has: one thread for tensors, and the embedded backbone, loaded once."""

import gc
import os
from collections.abc import Generator

import pytest
import torch

from capsules.backbones.base import LoadedBackbone
from capsules.backbones.load import load


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave what is imported out of garbage collections, each of which would look through it all."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """On tiny tensors more threads only wait for each other; on a busy machine, twenty times over."""
    torch.set_num_threads(1)
    # Processes that tests start are told by their environment.
    os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def embedded() -> LoadedBackbone:
    """On the CPU in float32, as its capsules were trained."""
    return load("embedded", device="cpu", dtype="float32")
